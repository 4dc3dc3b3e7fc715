cimport cython

from kafkaclient.producer.batches.batch_limit cimport BatchLimit
from kafkaclient.producer.batches.direct_append cimport TopicAppendSlots
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.partitioning.fair_share cimport FairShare

cdef class TopicBuffer:
    cdef public object name, view, last_view, side_lane_of, avoided, _awaiting_partitions
    cdef public object awaiting_partitions, ratio, strategy, last_bound_partition
    cdef public bytes topic_id
    cdef public TopicAppendSlots append_slots
    cdef public BatchLimit batch_limit
    cdef public FairShare fair_share
    cdef public PartitionQueue unbound
    cdef public dict queues
    cdef public bint has_waiters
    cpdef lanes_by_partition(self, view)
    cpdef list changed_queues(self, view)
    cpdef bint set_view(self, view) except -1
    cpdef forget_view(self)
    @cython.locals(queue=PartitionQueue)
    cpdef leave_cluster(self)
    @cython.locals(queue=PartitionQueue)
    cpdef bint _set_topic_id(self, topic_id) except -1
    cpdef set_detours(self, side_lane_of, avoided)
    cpdef set_has_waiters(self, bint waiting)
    cpdef await_partition(self, long long partition)
    cpdef end_await_partition(self, long long partition)
    cpdef bint switch_to(self, long long partition) except -1
