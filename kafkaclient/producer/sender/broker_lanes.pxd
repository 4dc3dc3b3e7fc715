cimport cython

from kafkaclient.producer.accumulator.ready_queues cimport ReadyQueues
from kafkaclient.producer.sender.broker_lane cimport BrokerLane


@cython.final
cdef class Kip794Outages:
    cdef public BrokerLanes _lanes
    cdef public object _router, unavailable
    cdef public double _timeout

    @cython.locals(number=Py_ssize_t)
    cpdef surveyed(self, wanted, available, double now)
    @cython.locals(found=list, lane=BrokerLane)
    cpdef update(self, ReadyQueues ready_queues, double now)
    @cython.locals(side=bint)
    cpdef bint _can_take(self, BrokerLane lane, double now) except -1


@cython.final
cdef class BrokerSurvey:
    cdef public dict available
    cdef public object expected_latency
    cdef public object saturated, eligible, last_resort
    cdef public double next_look
    cdef public bint liveness_pending


@cython.final
cdef class BrokerLanes:
    cdef public dict _lanes
    cdef public set side_lanes
    cdef public object _router, _metadata, _settings, _liveness, _accumulator
    cdef public double _unavailable_after, _refreshed_at

    cpdef BrokerLane get(self, Py_ssize_t number)
    @cython.locals(lane=BrokerLane, primary=BrokerLane)
    cpdef BrokerLane lane(self, Py_ssize_t number, double now)
    @cython.locals(lane=BrokerLane, number=Py_ssize_t)
    cpdef close_unused_side_lanes(self, needed)
    @cython.locals(lane=BrokerLane)
    cpdef in_flight_of(self, Py_ssize_t number)
    @cython.locals(lane=BrokerLane)
    cpdef double oldest_wait(self, Py_ssize_t number, double now) except? -1
    @cython.locals(lane=BrokerLane)
    cpdef double p95_latency(self, Py_ssize_t number) except? -1
    @cython.locals(lane=BrokerLane)
    cpdef bint may_be_waited_for(self, Py_ssize_t number) except -1
    @cython.locals(full=bint, lane=BrokerLane)
    cpdef current_state(self, Py_ssize_t number)
    @cython.locals(
        available=dict, eligible=set, expected=dict, free=Py_ssize_t, lane=BrokerLane, large=bint, last_resort=set,
        next_look=double, number=Py_ssize_t, on_trial=bint, pending=bint, saturated=set, side=bint
    )
    cpdef BrokerSurvey survey(self, wanted, ready_queues, double unblocked_since, double now)
    @cython.locals(overdue=bint, waited=double)
    cpdef update_state(self, BrokerLane lane, connection, double unblocked_since, double now)
    @cython.locals(rests_until=double)
    cpdef bint _cooling_down(self, BrokerLane lane, double now) except -1
    @cython.locals(other=BrokerLane, others=list)
    cpdef bint _is_slow(self, BrokerLane lane) except -1
    cpdef _request_metadata(self, BrokerLane lane, double waited, double now)
    cpdef _report_unreachable(self, Py_ssize_t node_id, double now)
