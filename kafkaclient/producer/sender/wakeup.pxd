cimport cython


@cython.final
cdef class LoopMonitor:
    cdef public object _clock, _on_tick, _on_lag, _timer
    cdef public double _unblocked_since, _due

    cpdef start(self)
    cpdef stop(self)
    cpdef double unblocked_since(self, double now) except? -1


@cython.final
cdef class LoopLagWarning:
    cdef public object _clock, _record
    cdef public double _silent_until


@cython.final
cdef class Wakeup:
    cdef public object _clock, _work, _ended, _timer
    cdef public double _at, _timer_at, _asked_at, _rest_until
    cdef public bint _will_look, _stopped

    cpdef stop(self)
    cpdef clear(self)
    @cython.locals(at=double)
    cpdef _set(self, ended, double now)
