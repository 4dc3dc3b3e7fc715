from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue


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
