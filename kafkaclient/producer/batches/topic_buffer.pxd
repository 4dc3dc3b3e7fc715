cimport cython

from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.direct_append cimport TopicAppendSlots
from kafkaclient.producer.batches.partition_queue cimport BufferShare, BufferShares, PartitionQueue
from kafkaclient.producer.partitioning.fair_share cimport FairShare


cdef class PartitionStrategy:
    cdef public bint may_move

    cpdef PartitionQueue choose_queue(self, record, view)
    cpdef PartitionQueue queue_for_new_batch(self, PartitionQueue queue, record, view)
    cpdef on_append(self, PartitionQueue queue, ProducerBatch batch, Py_ssize_t nbytes, view)
    cpdef bint is_sticky(self, PartitionQueue queue) except -1
    cpdef bint is_rebindable(self, PartitionQueue queue) except -1
    cpdef double extra_linger(self, PartitionQueue queue) except? -1
    cpdef on_batch_closed(self, PartitionQueue queue)
    cpdef on_batch_moved(self, PartitionQueue queue)
    cpdef bint should_reserve(self, PartitionQueue queue, ProducerBatch batch) except -1
    cpdef on_reserved(self, PartitionQueue queue, ProducerBatch batch)
    cpdef on_sent(self, PartitionQueue queue, ProducerBatch batch)
    cpdef update_metadata(self, view)
    cpdef reset(self)


@cython.final
cdef class CompressionRatio:
    cdef public double value

    cpdef observe(self, double ratio)


@cython.final
cdef class BatchLimit:
    cdef public Py_ssize_t _value
    cdef public double _rises_at

    cpdef forget(self)
    cpdef lower(self, Py_ssize_t size, double now)
    cpdef Py_ssize_t at(self, double now) except? -1


@cython.final
cdef class TopicBuffer:
    cdef public object name, topic_id, view, last_view, side_lane_of, avoided
    cdef public object _awaiting_partitions, awaiting_partitions
    cdef public TopicAppendSlots append_slots
    cdef public BatchLimit batch_limit
    cdef public FairShare fair_share
    cdef public PartitionQueue unbound
    cdef public dict queues
    cdef public BufferShares shares
    cdef public set waiting
    cdef public CompressionRatio ratio
    cdef public PartitionStrategy strategy
    cdef public Py_ssize_t last_bound_partition

    @cython.locals(lane=Py_ssize_t, routes=list)
    cpdef lanes_by_partition(self, view)
    @cython.locals(epoch=Py_ssize_t, lane=Py_ssize_t, leader=Py_ssize_t, queue=PartitionQueue)
    cpdef PartitionQueue queue(self, Py_ssize_t partition)
    @cython.locals(common=Py_ssize_t, n=Py_ssize_t, q=PartitionQueue)
    cpdef list changed_queues(self, view)
    @cython.locals(recreated=bint)
    cpdef bint set_view(self, view) except -1
    cpdef forget_view(self)
    @cython.locals(queue=PartitionQueue)
    cpdef leave_cluster(self)
    @cython.locals(queue=PartitionQueue)
    cpdef bint _set_topic_id(self, topic_id) except -1
    cpdef set_detours(self, side_lane_of, avoided)
    cpdef bint must_wait(self, Py_ssize_t place) except -1
    cpdef note_waiting(self, Py_ssize_t place, bint waiting)
    @cython.locals(known=bint, queue=PartitionQueue)
    cpdef BufferShare share_of(self, Py_ssize_t place)
    cpdef await_partition(self, Py_ssize_t partition)
    cpdef end_await_partition(self, Py_ssize_t partition)
    @cython.locals(switched=bint)
    cpdef bint switch_to(self, Py_ssize_t partition) except -1
