cimport cython

from kafkaclient.producer.batches._delivery cimport BatchResult, Delivery, _track
from kafkaclient.producer.batches._direct_append cimport DirectAppend
from kafkaclient.producer.batches._waiters cimport Callback

cdef extern from *:
    """
    static CYTHON_INLINE PyObject *kafkaclient_current(PyObject *variable) {
        PyObject *value = NULL;
        if (PyContextVar_Get(variable, NULL, &value) < 0) return NULL;
        if (value == NULL) PyErr_SetObject(PyExc_LookupError, variable);
        return value;
    }
    """
    object _current "kafkaclient_current" (object variable)

cdef object _with_pairs


@cython.final
cdef class Gate:
    cdef object _variable
    cdef object _decide
    cdef object _known
    cdef tuple _known_pairs
    cdef readonly tuple pairs
    cdef long long _skip

    cpdef bint is_sampled(self) except -1
    cpdef int skip(self, long long records) except -1
    cpdef int keep(self, context, tuple pairs) except -1


cdef bint _is_sampled(Gate gate) except -1
cdef object _unsampled(Gate gate, headers)
cdef object _try_append(
    DirectAppend producer, topic, value, key, partition, timestamp_ms, headers
)
cpdef int when_done(Delivery delivery, callback, target, context) except -1
@cython.locals(whole=BatchResult, batch_result=BatchResult, first=Py_ssize_t, count=Py_ssize_t)
cpdef int when_run_done(tuple run, callback, target, context) except -1
