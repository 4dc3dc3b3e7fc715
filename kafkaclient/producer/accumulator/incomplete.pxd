cimport cython

from kafkaclient.producer.accumulator.buffer_pool cimport BatchFactory, BufferPool
from kafkaclient.producer.accumulator.ready_queues cimport ReadyQueues
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.idempotence cimport ProducerIdentity
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue


@cython.final
cdef class IncompleteBatches:
    cdef public dict _batches
    cdef public object _settings, _observer, _order, flushes
    cdef public BufferPool _buffer_pool
    cdef public ReadyQueues _ready_queues
    cdef public ProducerIdentity _identity
    cdef public BatchFactory _batch_factory
    cdef public double _newest
    cdef public list _early, _landings
    cdef public set _failed_in_flight

    @cython.locals(created=double)
    cpdef add(self, ProducerBatch batch)
    cpdef complete(
        self, ProducerBatch batch, Py_ssize_t base_offset, Py_ssize_t log_append_time, double now,
        Py_ssize_t log_start_offset=*
    )
    cpdef fail(self, ProducerBatch batch, error, double now, record_errors=*)
    @cython.locals(queue=PartitionQueue)
    cpdef retry(self, ProducerBatch batch, error, double retry_at, double now, bint counts=*)
    cpdef resequence(self, ProducerBatch batch, error, double at, double now)
    @cython.locals(part=ProducerBatch, parts=list, sequence=Py_ssize_t, size=Py_ssize_t)
    cpdef split(self, ProducerBatch batch, double now)
    @cython.locals(rest=ProducerBatch)
    cpdef retry_without_rejected(self, ProducerBatch batch, errors, error, double now)
    @cython.locals(batch=ProducerBatch)
    cpdef ProducerBatch next_expired(self, double now)
    @cython.locals(batch=ProducerBatch)
    cpdef next_expiry(self)
    @cython.locals(first=ProducerBatch)
    cpdef ProducerBatch _oldest(self)
    @cython.locals(batch=ProducerBatch, created=double)
    cpdef double close_old(self, double now, double age) except? -1
    cpdef fail_without_answer(self, ProducerBatch batch, error, double now)
    cpdef fail_and_free(self, ProducerBatch batch, error, double now)
    @cython.locals(n=Py_ssize_t)
    cpdef _fail_records(self, ProducerBatch batch, error, record_errors=*)
    cpdef _finish(self, ProducerBatch batch, double now)
    cpdef _settle(self, ProducerBatch batch, double now)
    @cython.locals(youngest=Py_ssize_t)
    cpdef _end_flushes(self)
