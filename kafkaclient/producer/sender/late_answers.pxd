cimport cython

from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.sender.broker_lane cimport BrokerLane, ProduceRequest
from kafkaclient.producer.sender.broker_lanes cimport BrokerLanes
from kafkaclient.producer.wakeup cimport Wakeup


@cython.final
cdef class LateAnswers:
    cdef public BrokerLanes _lanes
    cdef public object _liveness, _router, _metadata
    cdef public Wakeup _wakeup
    cdef public bint _acks_all, _idempotent

    @cython.locals(lane=BrokerLane, oldest=ProduceRequest, since=double, waited=double)
    cpdef check(self, double unblocked_since, double now)
    @cython.locals(lane=BrokerLane)
    cpdef request_ended(self, ProduceRequest request, double unblocked_since, double now)
    cpdef request_succeeded(self, ProduceRequest request)
    @cython.locals(batch=ProducerBatch, needed=set)
    cpdef set _brokers_needed(self, ProduceRequest request)
    @cython.locals(b=ProducerBatch, blocked=list)
    cpdef _close_if_blocked_by_dead_replica(
        self, BrokerLane lane, ProduceRequest oldest, double now
    )
