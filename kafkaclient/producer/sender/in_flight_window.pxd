cimport cython


@cython.final
cdef class InFlightWindow:
    cdef public Py_ssize_t limit
    cdef public bint fixed, side_by_side, must_measure_alone
    cdef public object _round_trips, round_trip, service, _alone, _queueing
    cdef public double probed_at
    cdef public Py_ssize_t _compared_every, _responses_until_compared

    @cython.locals(after=double)
    cpdef on_round_trip(self, double round_trip)
    @cython.locals(service=double)
    cpdef on_response(self, double latency, Py_ssize_t ahead)
    @cython.locals(queued=double, alone=double, was_side_by_side=bint)
    cpdef compare(self, double latency, Py_ssize_t ahead, double shared)
    @cython.locals(alone=double, shared=double)
    cpdef bint is_comparison_due(self, double elapsed) except -1
    cpdef bint must_idle_for_probe(self, double busy_for, double p95_latency) except -1
    @cython.locals(waited=double)
    cpdef bint is_probe_due(self, double now) except -1
    @cython.locals(least=double)
    cpdef double _add(self, double round_trip) except? -1
    cpdef Py_ssize_t _size_for(self, round_trip) except? -1
