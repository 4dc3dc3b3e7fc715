cimport cython

from kafkaclient.producer.accumulator.batch_factory cimport BatchFactory
from kafkaclient.producer.accumulator.buffer_pool cimport BufferPool
from kafkaclient.producer.accumulator.ready_queues cimport ReadyQueues
from kafkaclient.producer.batches.batch cimport ProducerBatch

cdef class IncompleteBatches:
    cdef public dict _batches, flushes
    cdef public object _settings, _observer, _on_failed, _newest, _order
    cdef public BufferPool _buffer_pool
    cdef public ReadyQueues _ready_queues
    cdef public BatchFactory _batch_factory
    cdef public list _early, _landings
    cdef public set _failed_in_flight
    cpdef add(self, ProducerBatch batch)
    cpdef flush(self, double now)
    cpdef wait_landed(self)
    cpdef complete(self, ProducerBatch batch, long long base_offset, long long log_append_time, double now, long long log_start_offset=*)
    cpdef fail(self, ProducerBatch batch, error, double now, record_errors=*)
    cpdef resequence(self, ProducerBatch batch, error, double at, double now)
    @cython.locals(part=ProducerBatch)
    cpdef split(self, ProducerBatch batch, double now)
    cpdef sort_out(self, ProducerBatch batch, errors, error, double now)
    @cython.locals(batch=ProducerBatch)
    cpdef expire(self, double now, error_of, bint only_unsent=*)
    @cython.locals(batch=ProducerBatch)
    cpdef next_expiry(self)
    cpdef ProducerBatch _oldest(self)
    @cython.locals(batch=ProducerBatch)
    cpdef double close_old(self, double now, double age) except? -1
    cpdef fail_without_answer(self, ProducerBatch batch, error, double now)
    cpdef fail_and_free(self, ProducerBatch batch, error, double now)
    cpdef _fail_records(self, ProducerBatch batch, error, record_errors=*)
    cpdef _finish(self, ProducerBatch batch, double now)
    cpdef _settle(self, ProducerBatch batch, double now)
    cpdef _end_flushes(self)


@cython.locals(batch=ProducerBatch)
cpdef largest_backlog(oldest_first)
