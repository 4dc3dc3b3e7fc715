cimport cython

from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.idempotence cimport PartitionSequence, ProducerIdentity
from kafkaclient.producer.batches.topic_buffer cimport TopicBuffer


@cython.final
cdef class BufferShare:
    cdef public Py_ssize_t broker, held
    cdef public object claims


@cython.final
cdef class BufferShares:
    cdef public BufferShare unbound
    cdef public dict _by_broker
    cdef public bint several, moved

    @cython.locals(share=BufferShare)
    cpdef BufferShare of(self, Py_ssize_t broker)


@cython.final
cdef class PartitionQueue:
    cdef public TopicBuffer topic
    cdef public object tp, _batches, batches, _unacked, unacked, state
    cdef public Py_ssize_t partition, in_flight, leader, leader_epoch, lane, target_lane
    cdef public Py_ssize_t ready_number, typical_batch_size, batches_bound, bytes_bound
    cdef public Py_ssize_t bytes_sent, records_sent
    cdef public bint unbound
    cdef public double timer
    cdef public PartitionSequence sequence
    cdef public BufferShare share

    cpdef bint is_oldest(self, ProducerBatch batch) except -1
    cpdef enqueue(self, ProducerBatch batch)
    cpdef ProducerBatch take_unbound(self)
    @cython.locals(batch=ProducerBatch)
    cpdef give_back_unbound(self, batches)
    cpdef begin_flight(self, ProducerBatch batch, ProducerIdentity identity)
    cpdef complete(self, ProducerBatch batch)
    cpdef requeue(self, ProducerBatch batch)
    @cython.locals(at=Py_ssize_t, part=ProducerBatch)
    cpdef replace(self, ProducerBatch batch, parts)
    cpdef fail(self, ProducerBatch batch, bint maybe_written)
    cpdef _land(self, ProducerBatch batch)
    @cython.locals(at=Py_ssize_t, older=ProducerBatch)
    cpdef _queue_for_retry(self, ProducerBatch batch)
    @cython.locals(batch=ProducerBatch)
    cpdef set_leader(self, Py_ssize_t leader, Py_ssize_t epoch)
    cpdef set_target_lane(self, Py_ssize_t lane)
    cpdef change_lane(self)
    @cython.locals(batch=ProducerBatch, shares=BufferShares)
    cpdef _change_share(self)
    cpdef bint restart_sequence(self, ProducerIdentity identity) except -1
    @cython.locals(batch=ProducerBatch)
    cpdef on_topic_recreated(self)
    cpdef leave_cluster(self)
    cpdef on_sealed(self, Py_ssize_t raw_size)
    cpdef enter(self, state)
    cpdef become_ready(self, Py_ssize_t number)
    cpdef wait_until(self, double timer, state)
