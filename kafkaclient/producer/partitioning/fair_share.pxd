cimport cython

@cython.final
cdef class FairShare:
    cdef public object _random, lanes, _view, _near
    cdef public double _batch
    cdef public list _bytes_given, _lanes, _routes
    cdef public long long _least_of_all
    cdef public dict _reset_to, _heaps
    @cython.locals(before=list, competing=set, f=cython.longlong, given=cython.longlong, heap=list, heaps=dict, lane=cython.longlong, lanes=list, led=set, missing=cython.longlong, n=cython.longlong, reset_to=dict, stayed=bint, was=cython.longlong)
    cpdef bint update(self, view, near=*, routes=*) except -1
    @cython.locals(lanes=list)
    cpdef list _stayed(self, long long lane)
    @cython.locals(bytes_given=list, given=cython.longlong, least=cython.longlong)
    cpdef add(self, long long partition, long long nbytes)
    @cython.locals(least=cython.longlong)
    cpdef long long _least(self, long long lane) except? -1
    @cython.locals(average=cython.longlong, other=cython.longlong, others=list, rest=list)
    cpdef reset_to_average(self, long long lane)
    @cython.locals(closed=list, first=list, lane=cython.longlong)
    cpdef pick(self, lanes, is_open)
    @cython.locals(given=cython.longlong, heap=list, noted=cython.longlong, partition=cython.longlong, tie=cython.longlong)
    cpdef _first(self, long long lane)
