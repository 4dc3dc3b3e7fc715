from kafkaclient.producer.accumulator.buffer_pool cimport BufferPool
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue

cdef class Linger:
    cdef public object _seconds, _never_lingers, _flushes
    cdef public BufferPool _buffer_pool
    cpdef bint lingers(self, PartitionQueue queue, ProducerBatch head) except -1
    cpdef close(self)
