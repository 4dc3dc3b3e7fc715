cimport cython


@cython.final
cdef class MinimumShare:
    cdef public double _fraction, _batch, _total, _price
    cdef public Py_ssize_t _usual
    cdef public dict _due, _heaps

    @cython.locals(
        before=dict, d=double, due=double, fresh=double, heap=list, leader=Py_ssize_t, n=Py_ssize_t,
        partition=Py_ssize_t
    )
    cpdef update(self, partitions)
    @cython.locals(most=double)
    cpdef add(self, Py_ssize_t partition, Py_ssize_t nbytes)
    cpdef write_off(self, Py_ssize_t partition)
    cpdef bint is_below(self, Py_ssize_t partition, Py_ssize_t nbytes=*) except -1
    @cython.locals(due=double, heap=list, leader=Py_ssize_t)
    cpdef most_underserved(self, is_open)


@cython.final
cdef class FairShare:
    cdef public object _random, lanes, _view, _near
    cdef public double _batch
    cdef public list _bytes_given, _lanes, _routes
    cdef public Py_ssize_t _least_of_all
    cdef public dict _reset_to, _heaps

    @cython.locals(
        before=list, competing=set, f=Py_ssize_t, given=Py_ssize_t, heap=list, heaps=dict,
        lane=Py_ssize_t, lanes=list, led=set, missing=Py_ssize_t, n=Py_ssize_t, reset_to=dict,
        stayed=bint, was=Py_ssize_t
    )
    cpdef bint update(self, view, near=*, routes=*) except -1
    @cython.locals(lanes=list)
    cpdef list _stayed(self, Py_ssize_t lane)
    @cython.locals(bytes_given=list, given=Py_ssize_t, least=Py_ssize_t)
    cpdef add(self, Py_ssize_t partition, Py_ssize_t nbytes)
    @cython.locals(least=Py_ssize_t)
    cpdef Py_ssize_t _least(self, Py_ssize_t lane) except? -1
    @cython.locals(average=Py_ssize_t, other=Py_ssize_t, others=list, rest=list)
    cpdef reset_to_average(self, Py_ssize_t lane)
    @cython.locals(closed=list, first=list, lane=Py_ssize_t)
    cpdef pick(self, lanes, is_open)
    @cython.locals(
        given=Py_ssize_t, heap=list, noted=Py_ssize_t, partition=Py_ssize_t, tie=Py_ssize_t
    )
    cpdef _first(self, Py_ssize_t lane)
