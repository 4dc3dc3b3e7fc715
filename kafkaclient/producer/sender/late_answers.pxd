cimport cython

from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.sender.broker_lane cimport BrokerLane, ProduceRequest
from kafkaclient.producer.sender.broker_lanes cimport BrokerLanes

cdef class LateAnswers:
    cdef public BrokerLanes _lanes
    cdef public object _liveness, _router, _metadata, _acks_all, _idempotent, _wake
    cpdef check(self, double unblocked_since, double now)
    cpdef request_ended(self, ProduceRequest request, double unblocked_since, double now)
    cpdef request_succeeded(self, ProduceRequest request)
    @cython.locals(batch=ProducerBatch)
    cpdef set _brokers_needed(self, ProduceRequest request)
    cpdef _close_if_blocked_by_dead_replica(self, BrokerLane lane, ProduceRequest oldest, double now)
