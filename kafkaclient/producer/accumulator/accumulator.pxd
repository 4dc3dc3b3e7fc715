cimport cython

from kafkaclient.producer.accumulator.batch_factory cimport BatchFactory
from kafkaclient.producer.accumulator.binding cimport BatchBinding
from kafkaclient.producer.accumulator.buffer_pool cimport BufferPool
from kafkaclient.producer.accumulator.incomplete cimport IncompleteBatches
from kafkaclient.producer.accumulator.linger cimport Linger
from kafkaclient.producer.accumulator.ready_queues cimport ReadyQueues
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.batches.topic_buffer cimport TopicBuffer

cdef class RecordAccumulator:
    cdef public object settings, identity, observer, compressor, conditions, detours
    cdef public object _sticky_bytes, _open_for, _wake, _random31, _new_result
    cdef public object _on_only_record_awaited, _new_strategy
    cdef public BufferPool buffer_pool
    cdef public dict topics, append_slots
    cdef public Linger _linger
    cdef public ReadyQueues ready_queues
    cdef public BatchFactory _batch_factory
    cdef public IncompleteBatches incomplete
    cdef public BatchBinding binding
    cpdef close_append_slots(self, TopicBuffer topic)
    cpdef open_append_slots(self, TopicBuffer topic)
    @cython.locals(batch=ProducerBatch)
    cpdef take_sealed(self, double now)
    @cython.locals(topic=TopicBuffer)
    cpdef update_brokers(self, brokers)
    @cython.locals(queue=PartitionQueue, topic=TopicBuffer)
    cpdef TopicBuffer update_topic(self, view, double now)
    @cython.locals(queue=PartitionQueue, topic=TopicBuffer)
    cpdef leave_cluster(self, double now)
    @cython.locals(topic=TopicBuffer)
    cpdef forget_topic(self, name)
    cpdef close(self, double now)
    cpdef end_pass(self, unavailable)
