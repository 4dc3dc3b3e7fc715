from libc.stdint cimport int64_t, uint8_t

from kafkaclient.producer.batches.direct_append cimport TopicAppendSlots


cdef struct Row:
    const uint8_t* key
    Py_ssize_t key_size  # -1: null
    const uint8_t* value
    Py_ssize_t value_size  # -1: null
    Py_ssize_t headers_size  # encoded
    int64_t timestamp  # -1: now
    int64_t partition  # -1: to be chosen


cdef class Rows:
    cdef int locate(self, Py_ssize_t at, Row* row) except -1
    cdef uint8_t* put_headers(self, Py_ssize_t at, uint8_t* end) noexcept
    cdef bint put(self, TopicAppendSlots slots, Py_ssize_t at, int64_t now, list touched) except -1
