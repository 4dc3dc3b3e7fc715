cimport cython

from kafkaclient.net.pending_request cimport PendingRequest
from kafkaclient.producer.sender.in_flight_window cimport InFlightWindow


@cython.final
cdef class ProduceRequest(PendingRequest):
    cdef public BrokerLane lane
    cdef public object connection, names
    cdef public list batches
    cdef public Py_ssize_t version, ahead


@cython.final
cdef class BrokerLane:
    cdef public Py_ssize_t number, node_id, bytes_sent, requests_sent
    cdef public BrokerLane primary
    cdef public InFlightWindow window
    cdef public double idle_since, recent_minimum, _ready_at, _able_at, _measured_at
    cdef public double _response_at
    cdef public object latencies, _p95_latency, newest_latencies, in_flight, connection, state
    cdef public object exclusions
    cdef public bint ignore_disconnect, share_reset_due

    cpdef bint can_take(self, connection, Py_ssize_t window_size, double now) except -1
    @cython.locals(busy_for=double, free=Py_ssize_t, in_flight=Py_ssize_t, window=InFlightWindow)
    cpdef Py_ssize_t free_slots(self, bint has_large, double now) except? -1
    cpdef note_readiness(self, bint able, double now)
    cpdef enter(self, state)
    cpdef request_sent(self, ProduceRequest request, Py_ssize_t nbytes)
    cpdef pop_in_flight(self, double now)
    cpdef record_latency(self, double latency, Py_ssize_t ahead, double now)
    cpdef double expected_latency(self, double now) except? -1
    cpdef double oldest_wait(self, double now, double unblocked_since) except? -1


@cython.locals(half=Py_ssize_t, ordered=list)
cpdef double median(values) except? -1
