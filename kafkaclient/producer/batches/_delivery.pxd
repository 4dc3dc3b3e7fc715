cimport cython


cdef class BatchResult:
    cdef public str topic
    cdef public long partition
    cdef public long long base_offset
    cdef public long long log_append_time
    cdef public Py_ssize_t count
    cdef public bint done
    cdef public object error
    cdef public dict record_errors
    cdef public object on_unseen
    cdef public object loop
    cdef public Py_ssize_t live_deliveries
    cdef public object on_delivery
    cdef public list hooked
    cdef public object awaited
    cdef dict _waiters
    cdef list _firsts
    cdef list _parts
    cdef list _shifts
    cdef Py_ssize_t _dropped_from
    cdef Py_ssize_t _dropped_to
    cdef list _dropped

    cpdef int drop(self, Py_ssize_t index, Py_ssize_t count=*) except -1
    cdef Delivery delivery_of_last(self, long long timestamp)
    cdef _finish(self)


@cython.final
cdef class Delivery:
    cdef readonly BatchResult _batch_result
    cdef long long _timestamp
    cdef int _index
    cdef unsigned char _unseen
    cdef unsigned char _counted

    cdef int show(self) except -1

    cpdef bint done(self)
    cpdef result(self)
