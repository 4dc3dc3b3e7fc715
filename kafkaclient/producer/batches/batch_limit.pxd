cimport cython

@cython.final
cdef class BatchLimit:
    cdef public Py_ssize_t _value
    cdef public double _rises_at
    cpdef forget(self)
    cpdef lower(self, Py_ssize_t size, double now)
    cpdef Py_ssize_t at(self, double now) except? -1
