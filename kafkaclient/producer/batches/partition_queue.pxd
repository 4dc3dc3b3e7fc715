cimport cython

from kafkaclient.producer.batches.batch cimport ProducerBatch
from kafkaclient.producer.batches.topic_buffer cimport TopicBuffer

@cython.final
cdef class PartitionQueue:
    cdef public TopicBuffer topic
    cdef public object tp, _batches, batches, _unacked, unacked, state, sequence
    cdef public long long partition, in_flight, leader, leader_epoch, lane, target_lane
    cdef public long long ready_number, typical_batch_size, batches_bound, bytes_bound
    cdef public long long bytes_sent, records_sent
    cdef public bint unbound
    cdef public double timer
    cpdef bint is_oldest(self, ProducerBatch batch) except -1
    cpdef enqueue(self, ProducerBatch batch)
    cpdef ProducerBatch take_unbound(self)
    @cython.locals(batch=ProducerBatch)
    cpdef give_back_unbound(self, batches)
    cpdef begin_flight(self, ProducerBatch batch, identity)
    cpdef complete(self, ProducerBatch batch)
    cpdef requeue(self, ProducerBatch batch)
    @cython.locals(at=cython.longlong, part=ProducerBatch)
    cpdef replace(self, ProducerBatch batch, parts)
    cpdef fail(self, ProducerBatch batch, bint maybe_written)
    cpdef _land(self, ProducerBatch batch)
    @cython.locals(at=cython.longlong, older=ProducerBatch)
    cpdef _queue_for_retry(self, ProducerBatch batch)
    @cython.locals(batch=ProducerBatch)
    cpdef set_leader(self, long long leader, long long epoch)
    cpdef set_target_lane(self, long long lane)
    cpdef change_lane(self)
    cpdef bint restart_sequence(self, identity) except -1
    @cython.locals(batch=ProducerBatch)
    cpdef on_topic_recreated(self)
    cpdef leave_cluster(self)
    cpdef on_sealed(self, long long raw_size)
    cpdef enter(self, state)
    cpdef become_ready(self, long long number)
    cpdef wait_until(self, double timer, state)
