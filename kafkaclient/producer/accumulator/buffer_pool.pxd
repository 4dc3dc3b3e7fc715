cimport cython

@cython.final
cdef class Claim:
    cdef public long long nbytes
    cdef public object granted


@cython.final
cdef class BufferPool:
    cdef public long long total, available, _spendable
    cdef public object waiters
    cpdef bint try_take(self, long long nbytes) except -1
    cpdef force(self, long long nbytes)
    @cython.locals(claim=Claim)
    cpdef Claim ask(self, long long nbytes, granted)
    cpdef withdraw(self, Claim claim)
    cpdef Spending spend(self, long long nbytes)
    cpdef give_back(self, long long nbytes)
    @cython.locals(claim=Claim)
    cpdef admit(self)


@cython.final
cdef class Spending:
    cdef public BufferPool _buffer_pool
    cdef public long long _nbytes
