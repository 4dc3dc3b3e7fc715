cdef class Wakeup:
    cdef public object _clock, _work, _ended, _timer, _timer_at
    cdef public double _at, _asked_at, _rest_until
    cdef public bint _will_look, _stopped
    cpdef run(self, work)
    cpdef stop(self)
    cpdef clear(self)
    cpdef _set(self, ended, double now)
