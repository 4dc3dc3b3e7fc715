cimport cython

from kafkaclient.metrics.producer cimport ProducerMetrics
from kafkaclient.producer.accumulator.accumulator cimport RecordAccumulator
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.sender.broker_lane cimport BrokerLane, ProduceRequest
from kafkaclient.producer.sender.broker_lanes cimport BrokerLanes
from kafkaclient.producer.sender.late_answers cimport LateAnswers
from kafkaclient.producer.sender.late_binder cimport LateBinder
from kafkaclient.producer.sender.loop_monitor cimport LoopMonitor
from kafkaclient.producer.sender.responses cimport ResponseHandler
from kafkaclient.producer.sender.wakeup cimport Wakeup

cdef class Sender:
    cdef public RecordAccumulator _accumulator
    cdef public object _incomplete, _ready_queues, _metadata, _router, _settings, _clock
    cdef public object _on_identity_wanted, misrouting, produce_versions
    cdef public object _expiry_first_seen_at, _open_for, wake, liveness, _outages
    cdef public ProducerMetrics _metrics
    cdef public ResponseHandler _responses
    cdef public bint _closing
    cdef public double _close_old_at
    cdef public LateBinder _late_binder
    cdef public Wakeup _wakeup
    cdef public BrokerLanes lanes
    cdef public LateAnswers _late_answers
    cdef public LoopMonitor loop_monitor
    cpdef run(self)
    cpdef close(self)
    cpdef double _fill(self, double now) except? -1
    @cython.locals(batch=ProducerBatch)
    cpdef _send(self, BrokerLane lane, connection, list batches, double now)
    @cython.locals(batch=ProducerBatch, by_topic=dict, queue=PartitionQueue, request=ProduceRequest)
    cpdef _write(self, BrokerLane lane, connection, list batches, double now)
    @cython.locals(batch=ProducerBatch)
    cpdef _count(self, list batches, double now)
    cpdef _handle(self, ProduceRequest request, payload, error, double unblocked_since, double now)
    cpdef double _expire_and_close_old(self, double now) except? -1
    cpdef double _expire(self, double now) except? -1
