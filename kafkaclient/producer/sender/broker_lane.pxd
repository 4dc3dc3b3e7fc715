cimport cython

from kafkaclient.net.pending_request cimport PendingRequest
from kafkaclient.producer.sender.in_flight_window cimport InFlightWindow

cdef class ProduceRequest(PendingRequest):
    cdef public BrokerLane lane
    cdef public object connection, names, ahead
    cdef public list batches
    cdef public long long version


cdef class BrokerLane:
    cdef public long long number, bytes_sent, requests_sent
    cdef public object node_id, primary, latencies, _p95_latency, newest_latencies, in_flight
    cdef public object connection, state, exclusions
    cdef public InFlightWindow window
    cdef public double idle_since, recent_minimum, _ready_at, _able_at, _measured_at
    cdef public bint ignore_disconnect, share_reset_due
    cpdef bint can_take(self, connection, long long window_size, double now) except -1
    cpdef long long free_slots(self, bint has_large, double now) except? -1
    cpdef enter(self, state)
    cpdef request_sent(self, ProduceRequest request, long long nbytes)
    cpdef pop_in_flight(self, double now)
    cpdef record_latency(self, double latency, long long ahead, double now)
    cpdef double oldest_wait(self, double now, double unblocked_since) except? -1


@cython.locals(ordered=list)
cpdef double median(values) except? -1
