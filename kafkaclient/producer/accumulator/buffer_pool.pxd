cimport cython

from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.batch_result cimport BatchResult
from kafkaclient.producer.batches.partition_queue cimport BufferShare, BufferShares, PartitionQueue


@cython.final
cdef class BufferPool:
    cdef public Py_ssize_t total, available, _spendable
    cdef public BufferShares shares
    cdef public bint short
    cdef public object on_free

    cpdef bint may_hold(self, BufferShare share, Py_ssize_t nbytes) except -1
    cpdef Py_ssize_t room(self, BufferShare share) except? -1
    cpdef crowding_broker(self)
    cpdef bint try_take(self, Py_ssize_t nbytes, BufferShare share=*) except -1
    cpdef bint _admits(self, BufferShare share, Py_ssize_t nbytes) except -1
    cpdef force(self, Py_ssize_t nbytes)
    cpdef Spending spend(self, Py_ssize_t nbytes)
    cpdef give_back(self, Py_ssize_t nbytes)


@cython.final
cdef class Spending:
    cdef public BufferPool _buffer_pool
    cdef public Py_ssize_t _nbytes


@cython.final
cdef class BatchFactory:
    cdef public Py_ssize_t _batch_size, _small_batch_bytes, _elastic_limit
    cdef public object _compression, _serials
    cdef public bint _transactional

    @cython.locals(
        capacity=Py_ssize_t, elastic_limit=Py_ssize_t, limit=Py_ssize_t, most=Py_ssize_t,
        usual=Py_ssize_t
    )
    cpdef Py_ssize_t capacity_for(
        self, PartitionQueue queue, Py_ssize_t upper_bound, Py_ssize_t room, double now
    ) except? -1
    cpdef ProducerBatch new(
        self, PartitionQueue queue, BatchResult batch_result, Py_ssize_t limit, Py_ssize_t capacity,
        double created, bint rebindable=*, serial=*
    )
