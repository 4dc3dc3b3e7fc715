cimport cython

from kafkaclient.producer.batches._delivery cimport BatchResult, Delivery, _track
from kafkaclient.producer.batches._direct_append cimport DirectAppend
from kafkaclient.producer.batches._waiters cimport Callback

cdef extern from *:
    """
    static CYTHON_INLINE PyObject *kafkaclient_current(PyObject *variable) {
        PyObject *value = NULL;
        if (!PyContextVar_CheckExact(variable)) return PyObject_CallMethod(variable, "get", NULL);
        if (PyContextVar_Get(variable, NULL, &value) < 0) return NULL;
        if (value == NULL) PyErr_SetObject(PyExc_LookupError, variable);
        return value;
    }

    static CYTHON_INLINE PyObject *kafkaclient_traceparent(
        unsigned long long top, unsigned long long low, unsigned long long span_id, int flags
    ) {
        char text[64];
        int size = PyOS_snprintf(
            text, sizeof(text), "00-%016llx%016llx-%016llx-%02x", top, low, span_id, flags & 0xff
        );
        return PyBytes_FromStringAndSize(text, size);
    }
    """
    object _current "kafkaclient_current" (object variable)

    bytes _traceparent "kafkaclient_traceparent" (
        unsigned long long top, unsigned long long low, unsigned long long span_id, int flags
    )

cdef extern from "<math.h>":
    double _log "log" (double x) nogil

cdef object _key_text
cdef object _with_pairs
cdef object getrandbits
cdef object random
cdef object time_ns
cdef object _LOWER


@cython.final
cdef class PendingSpan:
    cdef Delivery _delivery
    cdef readonly unsigned long long top
    cdef readonly unsigned long long low
    cdef readonly unsigned long long span_id
    cdef readonly int flags
    cdef readonly long partition
    cdef readonly bint tombstone
    cdef readonly object described
    cdef readonly object key
    cdef readonly object core
    cdef readonly object parent
    cdef readonly object start_ns
    cdef readonly PendingSpans spans

    cpdef int follow(self, Delivery delivery) except -1
    @cython.locals(batch_result=BatchResult, delivery=Delivery, index=Py_ssize_t, offset=cython.longlong)
    cpdef int end(self) except -1


@cython.final
cdef class PendingSpans:
    cdef object _variable
    cdef object _spans
    cdef object _kind
    cdef object _bound
    cdef object _allowed_by
    cdef object _is_traced_elsewhere
    cdef bint _record_keys
    cdef tuple _facts
    cdef readonly object finish

    @cython.locals(facts=tuple)
    cpdef tuple start(self, producer, topic, value, key, partition)
    @cython.locals(span=PendingSpan)
    cpdef tuple start_with(self, tuple facts, producer, topic, value, key, partition)


@cython.final
cdef class Gate:
    cdef object _variable
    cdef object _decide
    cdef tuple _known
    cdef long long _records_to_skip
    cdef double _log_refused
    cdef bint _samples_all
    cdef public PendingSpans pending_spans

    @cython.locals(known=tuple)
    cpdef tuple unsampled_headers(self)
    cpdef int sample(self, double ratio) except -1
    cpdef int draw(self) except -1
    cpdef bint skip_record(self) except -1
    cpdef int stop(self) except -1
    cpdef int remember_unsampled(self, context, tuple headers) except -1


cdef tuple _unsampled_headers(Gate gate)
@cython.locals(pending_spans=PendingSpans, started=tuple)
cdef tuple _start(Gate gate, start, producer, topic, value, key, partition, headers)
cdef object _try_append(
    DirectAppend producer, topic, value, key, partition, timestamp_ms, headers
)
cpdef int when_done(Delivery delivery, callback, target) except -1
@cython.locals(whole=BatchResult, batch_result=BatchResult, first=Py_ssize_t, count=Py_ssize_t)
cpdef int when_run_done(tuple run, callback, target) except -1
