cdef class PendingRequest:
    cdef public Py_ssize_t correlation_id
    cdef public object on_done, api
    cdef public double sent_at, deadline
