from libc.stdint cimport int64_t, uint8_t

from kafkaclient.producer.batches._delivery cimport Delivery, BatchResult
from kafkaclient.wire._records cimport RecordBuffer


cdef class AppendSlot:
    cdef RecordBuffer _buffer
    cdef BatchResult _batch_result
    cdef object _signal
    cdef Py_ssize_t _signal_at
    cdef Py_ssize_t _run_first  # -1, or the first record of what is being poured: see _bulk.pyx

    cdef Delivery put(self, int64_t timestamp, bytes key, bytes value)
    cdef uint8_t* begin(self, int64_t timestamp, Py_ssize_t fields) except? NULL
    cdef int end(self, int64_t timestamp) except -1
    cdef int give_signal(self) except -1


cdef class TopicAppendSlots:
    cdef bint _ignore_keys
    cdef AppendSlot _unkeyed
    cdef list _by_partition

    cdef AppendSlot slot_for(self, partition, bytes key)
    cdef AppendSlot find(self, Py_ssize_t partition, const uint8_t* key, Py_ssize_t key_size)
