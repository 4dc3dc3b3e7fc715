cimport cython

from kafkaclient.metrics.producer cimport ProducerMetrics
from kafkaclient.producer.accumulator.incomplete cimport IncompleteBatches
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.idempotence cimport ProducerIdentity
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue


@cython.final
cdef class ResponseHandler:
    cdef public object _misrouting, _metadata, _settings, _rng, _fatal_errors
    cdef public IncompleteBatches _incomplete
    cdef public ProducerIdentity _identity
    cdef public ProducerMetrics _metrics

    @cython.locals(answers=dict, batch=ProducerBatch, hinted=bint)
    cpdef response(self, batches, result, Py_ssize_t node_id, double now)
    @cython.locals(appended_at=Py_ssize_t, log_start=Py_ssize_t)
    cpdef _complete(self, ProducerBatch batch, answer, double now)
    @cython.locals(batch=ProducerBatch, hints=list, partition=Py_ssize_t)
    cpdef _apply_leader_hints(self, batches, answers, endpoints)
    cpdef _missing_from_response(self, ProducerBatch batch, Py_ssize_t node_id, double now)
    cpdef _internal_error(self, ProducerBatch batch, cause, double now)
    @cython.locals(pause=double, used_up=bint)
    cpdef retry(self, ProducerBatch batch, error, double now, bint at_once=*)
    cpdef fail(self, ProducerBatch batch, error, double now, record_errors=*)
    @cython.locals(code=Py_ssize_t)
    cpdef _apply_error(self, ProducerBatch batch, answer, Py_ssize_t node_id, double now)
    @cython.locals(doomed=bint)
    cpdef _action_for(self, Py_ssize_t code)
    @cython.locals(is_leader=bint, queue=PartitionQueue)
    cpdef _check_route(self, ProducerBatch batch, Py_ssize_t code, Py_ssize_t node_id, double now)
    @cython.locals(aborting=bint, accepted=Py_ssize_t, rejected=dict)
    cpdef _fail_rejected(self, ProducerBatch batch, answer, error, double now)
    cpdef bint _can_resequence(self, ProducerBatch batch, Py_ssize_t code) except -1
    cpdef double _backoff(self, ProducerBatch batch) except? -1


cpdef bint is_ambiguous(Py_ssize_t code) except -1


@cython.locals(retriable=bint)
cpdef action_for(Py_ssize_t code)
