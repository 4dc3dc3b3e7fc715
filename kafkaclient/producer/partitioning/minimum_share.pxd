cimport cython

@cython.final
cdef class MinimumShare:
    cdef public double _fraction, _batch, _total, _price
    cdef public long long _usual
    cdef public dict _due, _heaps
    @cython.locals(before=dict, d=double, due=double, fresh=double, heap=list, leader=cython.longlong, n=cython.longlong, partition=cython.longlong)
    cpdef update(self, partitions)
    @cython.locals(most=double)
    cpdef add(self, long long partition, long long nbytes)
    cpdef write_off(self, long long partition)
    cpdef bint is_below(self, long long partition, long long nbytes=*) except -1
    @cython.locals(due=double, heap=list, leader=cython.longlong)
    cpdef most_underserved(self, is_open)
