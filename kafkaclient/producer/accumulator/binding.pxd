cimport cython

from kafkaclient.metrics.producer cimport ProducerMetrics
from kafkaclient.producer.accumulator.partition_strategies cimport BrokerConditions
from kafkaclient.producer.accumulator.ready_queues cimport ReadyQueues
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.batches.topic_buffer cimport PartitionStrategy, TopicBuffer


@cython.final
cdef class Detours:
    cdef public object _topics, _dead, _clean_leaders
    cdef public ReadyQueues _ready_queues
    cdef public bint _adaptive, _detoured
    cdef public dict _clean
    cdef public set side_lanes

    cpdef set_dead_brokers(self, dead, double now)
    @cython.locals(before=dict, clean=dict, stale=list, t=TopicBuffer, topic=TopicBuffer)
    cpdef update(self, changed, double now)
    @cython.locals(
        avoid=bint, lane=Py_ssize_t, partition=Py_ssize_t, queue=PartitionQueue, side_lane_of=dict,
        unclean=list
    )
    cpdef _update_topic(self, TopicBuffer topic, double now)
    @cython.locals(leader=Py_ssize_t)
    cpdef bint _is_clean(self, partition) except -1


@cython.final
cdef class BatchBinding:
    cdef public ReadyQueues _ready_queues
    cdef public BrokerConditions _conditions
    cdef public ProducerMetrics _metrics
    cdef public object _observer

    cpdef bind(
        self, ProducerBatch batch, PartitionQueue queue, bound_by, double now, bint rebindable=*
    )
    cpdef opened(self, ProducerBatch batch, PartitionQueue queue, double now, bint chosen)
    @cython.locals(strategy=PartitionStrategy)
    cpdef reserve(self, ProducerBatch batch, PartitionQueue queue, double now)
    @cython.locals(batch=ProducerBatch)
    cpdef end_reservation(self, PartitionQueue queue, double now)
    @cython.locals(
        avoided=bint, leaderless=dict, queue=PartitionQueue, reserved=dict, retrying=bint
    )
    cpdef unbind_unsendable(self, double now)
    @cython.locals(batch=ProducerBatch)
    cpdef _unbind_reserved(self, PartitionQueue queue, double now)
    @cython.locals(
        b=ProducerBatch, batches=list, certain=bint, strategy=PartitionStrategy, topic=TopicBuffer
    )
    cpdef _rescue_from_deleted_partition(self, PartitionQueue queue, double now)
    cpdef _unbind(self, list batches, PartitionQueue queue, double now)
    @cython.locals(q=PartitionQueue, queue=PartitionQueue)
    cpdef collapse_to_single_partition(self, TopicBuffer topic, double now)
    @cython.locals(batch=ProducerBatch)
    cpdef _bind_all_unbound(self, TopicBuffer topic, PartitionQueue queue, double now)


cpdef _partitions(TopicBuffer topic)
