cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkaclient.producer.batches.batch_result cimport BatchResult
from kafkaclient.producer.batches.delivery cimport Delivery, delivery_for_last
from kafkaclient.producer.batches.waiters cimport runs_here
from kafkaclient.wire.record_buffer cimport RecordBuffer
from kafkaclient.wire.murmur2 cimport hash_bytes
from kafkaclient.wire.record_buffer cimport headers_size

cdef extern from *:
    """
    #include <time.h>

    static CYTHON_INLINE int64_t kafkaclient_system_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }

    /* A few milliseconds behind, at a quarter of the cost. */
    static CYTHON_INLINE int64_t kafkaclient_coarse_ms(void) {
    #ifdef CLOCK_REALTIME_COARSE
        struct timespec now;
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    #else
        return kafkaclient_system_ms();
    #endif
    }
    """
    int64_t _system_ms "kafkaclient_system_ms" ()
    int64_t _coarse_ms "kafkaclient_coarse_ms" ()

cdef object RawRecord
cdef object _LAST_TIMESTAMP
cdef object _system_clock


@cython.final
cdef class AppendSlot:
    cdef RecordBuffer _buffer
    cdef BatchResult _batch_result
    cdef object _signal
    cdef Py_ssize_t _signal_at
    cdef Py_ssize_t _run_first

    @cython.locals(buffer=RecordBuffer)
    cdef Delivery put(
        self, int64_t timestamp, bytes key, bytes value, headers, Py_ssize_t headers_size
    )
    @cython.locals(first=bint)
    cdef bint count_record(self, int64_t timestamp) except -1
    cdef tuple end_run(self)
    cdef int _give_signal(self) except -1


@cython.final
cdef class TopicAppendSlots:
    cdef bint _ignore_keys
    cdef object _clock_s
    cdef AppendSlot _unkeyed
    cdef list _by_partition
    cdef int64_t _until_ms

    cpdef int64_t now_ms(self) except? -1
    cpdef use_for(self, double seconds)
    cpdef int remove_old(self, int64_t now_ms) except -1
    cpdef set_unkeyed(self, AppendSlot slot)
    cpdef set(self, Py_ssize_t partition, AppendSlot slot)
    cdef inline bint knows(self, partition)
    @cython.locals(at=Py_ssize_t)
    cdef AppendSlot slot_for(self, partition, bytes key)
    @cython.locals(count=Py_ssize_t)
    cdef AppendSlot find(self, Py_ssize_t partition, const uint8_t* key, Py_ssize_t key_size)


cdef class DirectAppend:
    cdef dict _slots
    cdef object _home
    cdef Py_ssize_t _largest
    cdef object _wall_clock_s
    cdef object _serialize

    @cython.locals(
        slots=TopicAppendSlots, in_bytes=bint, ready=bint, delivery=Delivery
    )
    cdef object _try_append(self, topic, value, key, partition, timestamp_ms, headers)
    @cython.locals(slots=TopicAppendSlots)
    cdef inline TopicAppendSlots _slots_of(self, topic)
    @cython.locals(
        slot=AppendSlot,
        key_bytes=bytes,
        value_bytes=bytes,
        encoded=Py_ssize_t,
        timestamp=int64_t,
        is_now=bint,
    )
    cdef Delivery _append_bytes(
        self, TopicAppendSlots slots, value, key, partition, timestamp_ms, headers
    )
    cdef tuple _in_bytes(self, topic, value, key, headers)
    cdef inline int64_t _timestamp(self, timestamp_ms) except? -1


cdef bint _is_bytes(data) noexcept
cdef _frozen(data)
cdef Py_ssize_t _length(bytes data) noexcept
cdef _pairs(headers)
