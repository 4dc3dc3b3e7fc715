cimport cython


@cython.final
cdef class InFlightWindow:
    cdef public Py_ssize_t limit
    cdef public bint fixed
    cdef public object _round_trips, round_trip, service
    cdef public double probed_at

    @cython.locals(after=double)
    cpdef on_round_trip(self, double round_trip)
    @cython.locals(service=double)
    cpdef on_response(self, double latency, Py_ssize_t ahead)
    cpdef bint must_idle_for_probe(self, double busy_for, double p95_latency) except -1
    @cython.locals(waited=double)
    cpdef bint is_probe_due(self, double now) except -1
    @cython.locals(least=double)
    cpdef double _add(self, double round_trip) except? -1
    cpdef Py_ssize_t _size_for(self, round_trip) except? -1
