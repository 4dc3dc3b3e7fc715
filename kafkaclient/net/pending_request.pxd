cdef class PendingRequest:
    cdef public long long correlation_id
    cdef public object on_done, api
    cdef public double sent_at, deadline
