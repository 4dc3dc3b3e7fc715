cimport cython

from kafkaclient.producer.accumulator.ready_queues cimport ReadyQueues
from kafkaclient.producer.sender.broker_lane cimport BrokerLane

cdef class BrokerSurvey:
    cdef public dict available
    cdef public object saturated, eligible, last_resort
    cdef public double next_look
    cdef public bint liveness_pending


cdef class BrokerLanes:
    cdef public dict _lanes
    cdef public set side_lanes
    cdef public object _router, _metadata, _settings, _liveness, _on_recovery
    cdef public object _unavailable_after, _refreshed_at
    cpdef BrokerLane get(self, long long number)
    cpdef close_unused_side_lanes(self, needed)
    cpdef in_flight_of(self, long long number)
    cpdef bint has_capacity(self, long long number) except -1
    cpdef bint may_be_waited_for(self, long long number) except -1
    cpdef current_state(self, long long number)
    @cython.locals(available=dict)
    cpdef BrokerSurvey survey(self, wanted, ReadyQueues ready_queues, double unblocked_since, double now)
    cpdef update_state(self, BrokerLane lane, connection, double unblocked_since, double now)
    cpdef bint _cooling_down(self, BrokerLane lane, double now) except -1
    cpdef bint _is_slow(self, BrokerLane lane) except -1
    cpdef _request_metadata(self, BrokerLane lane, double waited, double now)
    cpdef _report_unreachable(self, long long node_id, double now)
