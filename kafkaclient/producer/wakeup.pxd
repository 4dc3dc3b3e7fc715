cimport cython


@cython.final
cdef class LoopMonitor:
    cdef public object _clock, _metrics, _on_tick, _timer
    cdef public double _unblocked_since, _settled_at, _due, _silent_until

    cpdef start(self)
    cpdef stop(self)
    cpdef double unblocked_since(self, double now) except? -1
    cpdef double settled_at(self, double now) except? -1


cdef class Wakeup:
    cdef public object _clock, _work, _ended, _timer
    cdef public double _at, _timer_at, _asked_at, _rest_until
    cdef public bint _will_look, _stopped

    cpdef stop(self)
    cpdef wake_at(self, double when=*)
    cpdef clear(self)
    @cython.locals(at=double)
    cpdef _set(self, ended, double now)
