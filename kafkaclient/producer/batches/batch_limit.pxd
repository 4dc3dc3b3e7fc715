cimport cython

@cython.final
cdef class BatchLimit:
    cdef public long long _value
    cdef public double _rises_at
    cpdef forget(self)
    cpdef lower(self, long long size, double now)
    cpdef long long at(self, double now) except? -1
