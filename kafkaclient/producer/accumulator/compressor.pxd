cimport cython

from kafkaclient.producer.accumulator.buffer_pool cimport BufferPool
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.wakeup cimport Wakeup


@cython.final
cdef class InlineCompression:
    cpdef run(self, work, done)
    cpdef close(self)


@cython.final
cdef class CompressionThreads:
    cdef public Py_ssize_t at_a_time
    cdef public object _loop, _executor
    cdef public set _jobs
    cdef public bint _closed

    cpdef run(self, work, done)
    cpdef close(self)


@cython.final
cdef class BatchCompressor:
    cdef public object _codec, _background, _waiting
    cdef public bint enabled
    cdef public Py_ssize_t small_batch_bytes, _allowance, _at_work
    cdef public BufferPool _buffer_pool
    cdef public Wakeup _wakeup
    cdef public list _finished

    @cython.locals(raw_size=Py_ssize_t)
    cpdef compress_now(self, ProducerBatch batch)
    cpdef bint start_if_large(self, ProducerBatch batch) except -1
    @cython.locals(batch=ProducerBatch, index=Py_ssize_t)
    cpdef compress_ahead(self, PartitionQueue queue)
    @cython.locals(batch=ProducerBatch, ended=list)
    cpdef list finished(self)
    cpdef close(self)
    @cython.locals(batch=ProducerBatch)
    cpdef _feed(self)
    cpdef _failure(self, ProducerBatch batch, defect)


cpdef _attempt(work)
