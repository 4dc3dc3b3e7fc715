cimport cython

@cython.final
cdef class MinimumShare:
    cdef public double _fraction, _batch, _total, _price
    cdef public Py_ssize_t _usual
    cdef public dict _due, _heaps
    @cython.locals(before=dict, d=double, due=double, fresh=double, heap=list, leader=Py_ssize_t, n=Py_ssize_t, partition=Py_ssize_t)
    cpdef update(self, partitions)
    @cython.locals(most=double)
    cpdef add(self, Py_ssize_t partition, Py_ssize_t nbytes)
    cpdef write_off(self, Py_ssize_t partition)
    cpdef bint is_below(self, Py_ssize_t partition, Py_ssize_t nbytes=*) except -1
    @cython.locals(due=double, heap=list, leader=Py_ssize_t)
    cpdef most_underserved(self, is_open)
