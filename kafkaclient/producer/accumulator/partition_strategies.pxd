cimport cython

from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.batches.topic_buffer cimport PartitionStrategy, TopicBuffer
from kafkaclient.producer.partitioning.fair_share cimport MinimumShare


@cython.final
cdef class BrokerConditions:
    cdef public object rack, kip794_unavailable, brokers, accepts_new_batch
    cdef public Py_ssize_t sender_passes
    cdef public dict reserved_queues


cdef class LateBinding(PartitionStrategy):
    cdef public TopicBuffer _topic
    cdef public MinimumShare _minimum_share
    cdef public BrokerConditions _conditions
    cdef public PartitionQueue _reserved
    cdef public Py_ssize_t _searched_in_pass

    @cython.locals(queue=PartitionQueue)
    cpdef PartitionQueue choose_queue(self, record, view)
    @cython.locals(conditions=BrokerConditions, queue=PartitionQueue, topic=TopicBuffer)
    cpdef PartitionQueue _find(self)
    cpdef PartitionQueue queue_for_new_batch(self, PartitionQueue queue, record, view)
    cpdef on_append(self, PartitionQueue queue, ProducerBatch batch, Py_ssize_t nbytes, view)
    cpdef bint is_sticky(self, PartitionQueue queue) except -1
    cpdef bint is_rebindable(self, PartitionQueue queue) except -1
    cpdef bint should_reserve(self, PartitionQueue queue, ProducerBatch batch) except -1
    cpdef on_reserved(self, PartitionQueue queue, ProducerBatch batch)
    cpdef double extra_linger(self, PartitionQueue queue) except? -1
    cpdef on_batch_moved(self, PartitionQueue queue)
    cpdef on_batch_closed(self, PartitionQueue queue)
    @cython.locals(size=Py_ssize_t)
    cpdef on_sent(self, PartitionQueue queue, ProducerBatch batch)
    @cython.locals(routes=list)
    cpdef update_metadata(self, view)
    cpdef reset(self)


cdef class RoundRobinBinding(LateBinding):
    cpdef on_sent(self, PartitionQueue queue, ProducerBatch batch)


cdef class Kip794(PartitionStrategy):
    cdef public object partitioner, _near
    cdef public _Eligible _eligible
    cdef public TopicBuffer _topic
    cdef public BrokerConditions _conditions
    cdef public Py_ssize_t _load_as_of

    cpdef PartitionQueue choose_queue(self, record, view)
    cpdef PartitionQueue queue_for_new_batch(self, PartitionQueue queue, record, view)
    cpdef on_append(self, PartitionQueue queue, ProducerBatch batch, Py_ssize_t nbytes, view)
    cpdef reset(self)


@cython.final
cdef class _Eligible:
    cdef public object _view, _unavailable, partitions
    cdef public dict index_of

    cpdef bint is_current(self, view, unavailable) except -1


cdef class CustomPartitioner(PartitionStrategy):
    cdef public TopicBuffer _topic
    cdef public object _metadata, _load, _who, _partition, _on_new_batch

    @cython.locals(count=Py_ssize_t)
    cpdef PartitionQueue choose_queue(self, record, view)
    cpdef PartitionQueue queue_for_new_batch(self, PartitionQueue queue, record, view)
    cpdef _refused(self, what)


cpdef _as_int(answer)
