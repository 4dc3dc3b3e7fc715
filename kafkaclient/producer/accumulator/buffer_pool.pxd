cimport cython

@cython.final
cdef class Claim:
    cdef public Py_ssize_t nbytes
    cdef public object granted


@cython.final
cdef class BufferPool:
    cdef public Py_ssize_t total, available, _spendable
    cdef public object waiters
    cpdef bint try_take(self, Py_ssize_t nbytes) except -1
    cpdef force(self, Py_ssize_t nbytes)
    @cython.locals(claim=Claim)
    cpdef Claim ask(self, Py_ssize_t nbytes, granted)
    cpdef withdraw(self, Claim claim)
    cpdef Spending spend(self, Py_ssize_t nbytes)
    cpdef give_back(self, Py_ssize_t nbytes)
    @cython.locals(claim=Claim)
    cpdef admit(self)


@cython.final
cdef class Spending:
    cdef public BufferPool _buffer_pool
    cdef public Py_ssize_t _nbytes
