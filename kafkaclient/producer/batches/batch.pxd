cimport cython

from kafkaclient.producer.batches.batch_result cimport BatchResult
from kafkaclient.producer.batches.direct_append cimport AppendSlot
from kafkaclient.producer.batches.partition_queue cimport BufferShare, PartitionQueue
from kafkaclient.producer.batches.topic_buffer cimport CompressionRatio
from kafkaclient.wire.records cimport BatchBuilder


@cython.final
cdef class ProducerBatch:
    cdef public BatchResult result
    cdef public Py_ssize_t serial, charged, credited_bytes, sealed_size, attempts, retries
    cdef public Py_ssize_t leader_epoch, base_sequence, sequence_order, producer_id
    cdef public Py_ssize_t producer_epoch, raw_full, _raw_limit
    cdef public double created, lingers_until, retry_at, _ratio_factor
    cdef public BatchBuilder builder
    cdef public PartitionQueue queue
    cdef public BufferShare share
    cdef public bint rebindable, any_partition, no_linger, closed, sealed, in_flight
    cdef public bint compressing, maybe_written, maybe_elsewhere, split_after_uncertain_write
    cdef public bint transactional
    cdef public object binding_facts, last_error, topic_id, _compression
    cdef public AppendSlot append_slot
    cdef public CompressionRatio _ratio

    @cython.locals(raw=Py_ssize_t)
    cpdef Py_ssize_t _raw_size_of(self, Py_ssize_t size) except? -1
    @cython.locals(timestamp=Py_ssize_t)
    cpdef bint append(self, record) except -1
    cpdef adopt(self, BatchBuilder records)
    @cython.locals(best=Py_ssize_t, builder=BatchBuilder, delta=Py_ssize_t, needed=Py_ssize_t)
    cpdef growth_for(self, record)
    cpdef bind(self, PartitionQueue queue, bint rebindable=*)
    cpdef set_any_partition(self)
    cpdef note_record(self, bint left_to_producer)
    cpdef record_binding(self, facts)
    cpdef credit(self, Py_ssize_t nbytes)
    cpdef linger_until(self, double when)
    cpdef stop_lingering(self)
    cpdef close(self)
    cpdef open_append_slot(self, filled_up)
    cpdef grow(self, Py_ssize_t nbytes)
    @cython.locals(freed=Py_ssize_t)
    cpdef Py_ssize_t set_charge(self, Py_ssize_t nbytes) except? -1
    cpdef move_charge(self, BufferShare share)
    cpdef seal(self)
    cpdef begin_compression(self)
    @cython.locals(raw=Py_ssize_t)
    cpdef end_compression(self, packed)
    cpdef reset_compression_estimate(self)
    cpdef stamp(
        self, Py_ssize_t producer_id, Py_ssize_t producer_epoch, Py_ssize_t base_sequence, order=*
    )
    cpdef begin_flight(self, Py_ssize_t leader_epoch, topic_id)
    cpdef land(self)
    cpdef mark_uncertain(self)
    cpdef mark_unwritten(self)
    cpdef leave_cluster(self)
    cpdef schedule_retry(self, error, double at, bint counts)
    cpdef retry_at_once(self)
    cpdef unbind(self)
    cpdef inherit(self, ProducerBatch parent)
    cpdef buffer(self)
