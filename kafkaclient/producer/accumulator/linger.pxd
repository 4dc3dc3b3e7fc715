cimport cython

from kafkaclient.producer.accumulator.buffer_pool cimport BufferPool
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue

@cython.final
cdef class Linger:
    cdef public double _seconds
    cdef public bint _never_lingers
    cdef public BufferPool _buffer_pool
    cdef public object _flushes
    @cython.locals(seconds=double)
    cpdef double until(self, PartitionQueue queue, double now, bint rebindable) except? -1
    cpdef bint lingers(self, PartitionQueue queue, ProducerBatch head) except -1
    cpdef close(self)
