cimport cython

cdef class FairShare:
    cdef public object _random, lanes, _routes, _view, _near
    cdef public double _batch
    cdef public list _bytes_given, _lanes
    cdef public long long _least_of_all
    cdef public dict _reset_to, _heaps
    cpdef bint update(self, view, near=*, routes=*) except -1
    cpdef list _stayed(self, long long lane)
    cpdef add(self, long long partition, long long nbytes)
    cpdef long long _least(self, long long lane) except? -1
    cpdef reset_to_average(self, long long lane)
    @cython.locals(closed=list, first=list)
    cpdef pick(self, lanes, is_open)
    cpdef _first(self, long long lane)
