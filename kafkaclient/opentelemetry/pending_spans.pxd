cimport cython

from kafkaclient.producer.batches.delivery cimport Delivery

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

cdef object getrandbits
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
    cdef readonly object description
    cdef readonly object key
    cdef readonly object core
    cdef readonly object parent
    cdef readonly object start_ns
    cdef readonly PendingSpans spans

    cpdef int follow(self, Delivery delivery) except -1
    @cython.locals(delivery=Delivery)
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
