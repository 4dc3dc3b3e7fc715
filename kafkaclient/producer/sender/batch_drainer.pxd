cimport cython

from kafkaclient.producer.accumulator.binding cimport BatchBinding
from kafkaclient.producer.accumulator.buffer_pool cimport BufferPool
from kafkaclient.producer.accumulator.compressor cimport BatchCompressor
from kafkaclient.producer.accumulator.incomplete cimport IncompleteBatches
from kafkaclient.producer.accumulator.ready_queues cimport ReadyQueues
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.idempotence cimport ProducerIdentity
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.batches.topic_buffer cimport TopicBuffer
from kafkaclient.producer.partitioning.fair_share cimport FairShare
from kafkaclient.producer.sender.broker_lanes cimport BrokerSurvey


@cython.final
cdef class BatchDrainer:
    cdef public ReadyQueues ready_queues
    cdef public BatchBinding binding
    cdef public BufferPool buffer_pool
    cdef public ProducerIdentity identity
    cdef public BatchCompressor _compressor
    cdef public IncompleteBatches _incomplete

    @cython.locals(
        drain_pass=_DrainPass, lane=Py_ssize_t, queue=PartitionQueue, ready=ReadyQueues, turns=list
    )
    cpdef drain(self, BrokerSurvey survey, Py_ssize_t max_bytes, double now)
    @cython.locals(bound=bint, source=PartitionQueue)
    cpdef rotate(self, double now)
    cpdef bint seal(self, ProducerBatch batch, double now) except -1


@cython.final
cdef class _DrainPass:
    cdef public dict requests, room
    cdef public BatchDrainer _drainer
    cdef public ReadyQueues _ready_queues
    cdef public BrokerSurvey _survey
    cdef public double _now
    cdef public set _unsaturated, _must_send, _taken
    cdef public object _crowding

    @cython.locals(head=ProducerBatch, lane=Py_ssize_t, now=double)
    cpdef take_first(self, PartitionQueue queue)
    @cython.locals(drainer=BatchDrainer, head=ProducerBatch, now=double, target=PartitionQueue)
    cpdef bind_first(self, PartitionQueue source)
    @cython.locals(
        any_eligible=bint, candidates=set, fair_share=FairShare, lane=Py_ssize_t,
        reserved=PartitionQueue, soonest=list, survey=BrokerSurvey, usable=list, usual=bint
    )
    cpdef PartitionQueue _target_for(self, TopicBuffer topic, ProducerBatch batch)
    @cython.locals(latencies=dict, latency=double, limit=double)
    cpdef list _soonest(self, TopicBuffer topic, list lanes)
    cpdef bint _fits(self, ProducerBatch batch, Py_ssize_t lane) except -1
    cpdef _add(self, ProducerBatch batch, PartitionQueue queue)
