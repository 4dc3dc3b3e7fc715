cdef class MinimumShare:
    cdef public double _fraction, _total, _price
    cdef public long long _usual
    cdef public object _batch
    cdef public dict _due, _heaps
    cpdef update(self, partitions)
    cpdef add(self, long long partition, long long nbytes)
    cpdef write_off(self, long long partition)
    cpdef bint is_below(self, long long partition, long long nbytes=*) except -1
    cpdef most_underserved(self, is_open)
