cdef class LoopMonitor:
    cdef public object _clock, _on_tick, _on_lag, _unblocked_since, _timer
    cdef public double _due
    cpdef start(self)
    cpdef stop(self)
    cpdef double unblocked_since(self, double now) except? -1


cdef class LoopLagWarning:
    cdef public object _clock, _record, _silent_until
