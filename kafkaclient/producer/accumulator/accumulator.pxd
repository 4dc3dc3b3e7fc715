cimport cython

from kafkaclient.metrics.producer cimport ProducerMetrics
from kafkaclient.producer.accumulator.binding cimport BatchBinding, Detours
from kafkaclient.producer.accumulator.buffer_pool cimport BatchFactory, BufferPool
from kafkaclient.producer.accumulator.compressor cimport BatchCompressor
from kafkaclient.producer.accumulator.incomplete cimport IncompleteBatches
from kafkaclient.producer.accumulator.partition_strategies cimport BrokerConditions
from kafkaclient.producer.accumulator.ready_queues cimport Linger, ReadyQueues
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.batch_result cimport BatchResult
from kafkaclient.producer.batches.delivery cimport Delivery
from kafkaclient.producer.batches.direct_append cimport AppendSlot, TopicAppendSlots
from kafkaclient.producer.batches.idempotence cimport ProducerIdentity
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.batches.topic_buffer cimport PartitionStrategy, TopicBuffer
from kafkaclient.producer.partitioning.fair_share cimport FairShare
from kafkaclient.producer.wakeup cimport Wakeup
from kafkaclient.wire.records cimport BatchBuilder


@cython.final
cdef class RecordAccumulator:
    cdef public object settings, observer, _random31, _new_result
    cdef public object _on_only_record_awaited, _new_strategy
    cdef public ProducerIdentity identity
    cdef public ProducerMetrics _metrics
    cdef public Wakeup _wakeup
    cdef public BufferPool buffer_pool
    cdef public dict topics, append_slots
    cdef public BatchCompressor compressor
    cdef public Linger _linger
    cdef public ReadyQueues ready_queues
    cdef public BatchFactory _batch_factory
    cdef public IncompleteBatches incomplete
    cdef public BrokerConditions conditions
    cdef public BatchBinding binding
    cdef public Detours detours
    cdef public Py_ssize_t _sticky_bytes
    cdef public double _open_for

    @cython.locals(buffer=TopicBuffer, fair_share=FairShare, slots=TopicAppendSlots)
    cpdef TopicBuffer topic(self, name)
    cpdef close_append_slots(self, TopicBuffer topic)
    cpdef open_append_slots(self, TopicBuffer topic)
    @cython.locals(
        batch=ProducerBatch, before=Py_ssize_t, chosen=bint, created=double,
        elsewhere=PartitionQueue, final=bint, queue=PartitionQueue, sticky=bint,
        strategy=PartitionStrategy
    )
    cpdef Delivery append(
        self, TopicBuffer topic, partition, record, double now, bint force=*, since=*
    )
    @cython.locals(slot=AppendSlot, slots=TopicAppendSlots)
    cpdef _install_append_slot(
        self, PartitionQueue queue, ProducerBatch batch, double now, bint unkeyed
    )
    @cython.locals(best=Py_ssize_t, granted=Py_ssize_t, least=Py_ssize_t)
    cpdef _fit(self, ProducerBatch batch, record, double created, bint force)
    @cython.locals(
        batch=ProducerBatch, batch_result=BatchResult, buffer_pool=BufferPool, capacity=Py_ssize_t,
        fits=bint, rebindable=bint, records=BatchBuilder, strategy=PartitionStrategy,
        upper_bound=Py_ssize_t
    )
    cpdef ProducerBatch _open(
        self, PartitionQueue queue, record, double now, double created, bint chosen, bint force
    )
    @cython.locals(batch=ProducerBatch)
    cpdef take_sealed(self, double now)
    @cython.locals(topic=TopicBuffer)
    cpdef update_brokers(self, brokers)
    @cython.locals(
        changed=list, epoch=Py_ssize_t, leader=Py_ssize_t, queue=PartitionQueue, recreated=bint,
        topic=TopicBuffer
    )
    cpdef TopicBuffer update_topic(self, view, double now)
    @cython.locals(queue=PartitionQueue, topic=TopicBuffer)
    cpdef leave_cluster(self, double now)
    @cython.locals(topic=TopicBuffer)
    cpdef forget_topic(self, name)
    cpdef close(self, double now)
    cpdef end_pass(self, unavailable)
