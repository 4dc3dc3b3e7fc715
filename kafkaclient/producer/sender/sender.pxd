cimport cython

from kafkaclient.metrics.producer cimport ProducerMetrics
from kafkaclient.producer.accumulator.accumulator cimport RecordAccumulator
from kafkaclient.producer.accumulator.incomplete cimport IncompleteBatches
from kafkaclient.producer.accumulator.ready_queues cimport ReadyQueues
from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.partition_queue cimport PartitionQueue
from kafkaclient.producer.batches.topic_buffer cimport TopicBuffer
from kafkaclient.producer.sender.broker_lane cimport BrokerLane, ProduceRequest
from kafkaclient.producer.sender.broker_lanes cimport BrokerLanes, BrokerSurvey, Kip794Outages
from kafkaclient.producer.sender.late_answers cimport LateAnswers
from kafkaclient.producer.sender.batch_drainer cimport BatchDrainer
from kafkaclient.producer.sender.responses cimport ResponseHandler
from kafkaclient.producer.wakeup cimport LoopMonitor, Wakeup


@cython.final
cdef class Sender:
    cdef public RecordAccumulator _accumulator
    cdef public IncompleteBatches _incomplete
    cdef public ReadyQueues _ready_queues
    cdef public object _metadata, _router, _settings, _clock, _producer_ids, misrouting
    cdef public object produce_versions, _expiry_first_seen_at, liveness
    cdef public ProducerMetrics _metrics
    cdef public ResponseHandler _responses
    cdef public bint _closing
    cdef public double _open_for, _close_old_at
    cdef public BatchDrainer _drainer
    cdef public Wakeup _wakeup
    cdef public BrokerLanes lanes
    cdef public LateAnswers _late_answers
    cdef public LoopMonitor loop_monitor
    cdef public Kip794Outages _outages

    cpdef run(self)
    cpdef close(self)
    @cython.locals(
        accumulator=RecordAccumulator, batches=list, due=double, number=Py_ssize_t,
        ready_queues=ReadyQueues, requests=dict, settled_at=double, survey=BrokerSurvey,
        unblocked_since=double, wanted=set
    )
    cpdef double _fill(self, double now) except? -1
    @cython.locals(batch=ProducerBatch)
    cpdef _send(self, BrokerLane lane, connection, list batches, double now)
    @cython.locals(
        batch=ProducerBatch, buffers=list, by_id=bint, by_topic=dict, correlation_id=Py_ssize_t,
        names=dict, newest=Py_ssize_t, oldest=Py_ssize_t, partitions=list, queue=PartitionQueue,
        request=ProduceRequest, topic=TopicBuffer, topics=list, version=Py_ssize_t
    )
    cpdef _write(self, BrokerLane lane, connection, list batches, double now)
    @cython.locals(
        batch=ProducerBatch, count=Py_ssize_t, metrics=ProducerMetrics, partition=Py_ssize_t,
        records=Py_ssize_t, size=Py_ssize_t
    )
    cpdef _count(self, list batches, double now)
    @cython.locals(
        b=ProducerBatch, lane=BrokerLane, node_id=Py_ssize_t, now=double, unblocked_since=double
    )
    cpdef _answered(self, ProduceRequest request, payload, error)
    @cython.locals(at_once=bint, lane=BrokerLane, throttle=double)
    cpdef _handle(self, ProduceRequest request, payload, error, double unblocked_since, double now)
    @cython.locals(close_at=double)
    cpdef double _expire_and_close_old(self, double now) except? -1
    @cython.locals(batch=ProducerBatch, second_look=bint)
    cpdef double _expire(self, double now) except? -1
    cpdef _fail_expired(self, ProducerBatch batch, double now)
