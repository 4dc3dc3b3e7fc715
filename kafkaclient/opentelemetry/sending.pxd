cimport cython

from kafkaclient.producer.batches.delivery cimport Delivery
from kafkaclient.producer.batches.direct_append cimport DirectAppend

cdef extern from "<math.h>":
    double _log "log" (double x) nogil

cdef object _with_pairs
cdef object random


@cython.final
cdef class SpanGate:
    cdef object _current
    cdef object _decide
    cdef tuple _known
    cdef long long _records_to_skip
    cdef double _log_refused
    cdef bint _samples_all

    @cython.locals(known=tuple)
    cpdef tuple unsampled_headers(self)
    cpdef int sample(self, double ratio) except -1
    cpdef int draw(self) except -1
    cpdef bint skip_record(self) except -1
    cpdef int stop(self) except -1
    cpdef int remember_unsampled(self, context, tuple headers) except -1


cdef tuple _unsampled_headers(SpanGate gate)
cdef object _try_append(
    DirectAppend producer, topic, value, key, partition, timestamp_ms, headers
)
