cimport cython


cdef class _Window:
    cdef public double start
    cdef public double last
    cdef public Py_ssize_t count
    cdef public object sum
    cdef public double maximum


cdef class Windowed:
    cdef double _length
    cdef Py_ssize_t _number
    cdef readonly list _windows
    cdef _Window _window
    cdef Py_ssize_t _index
    cdef _Window _retired
    cdef Windowed _parent

    @cython.locals(values=Windowed, window=_Window)
    cpdef record(self, value, double now)
    cdef _Window _advance(self, double now)
