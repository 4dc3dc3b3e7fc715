cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkaclient.producer.batches cimport _delivery
from kafkaclient.producer.batches._delivery cimport Delivery
from kafkaclient.wire cimport _record_buffer
from kafkaclient.wire._murmur2 cimport hash_bytes
from kafkaclient.wire._record_buffer cimport headers_size

cdef extern from *:
    """
    #include <time.h>

    #if PY_VERSION_HEX < 0x030C0000
    typedef struct { PyObject_HEAD PyObject *loop; } RunningLoopHolder;
    #endif

    /* Whether the event loop runs in this thread, by what asyncio keeps in the thread's dictionary,
       before Python 3.12 inside of an object of its own. 0: it does not, or asyncio has to be
       asked, which takes a Python call, and before 3.12 a system call. */
    static CYTHON_INLINE int kafkaclient_is_kept_loop(PyObject *key, PyObject *loop) {
    #if PY_VERSION_HEX < 0x030E0000 && defined(CYTHON_COMPILING_IN_CPYTHON) && CYTHON_COMPILING_IN_CPYTHON
        PyObject *dict = PyThreadState_GetDict();
        PyObject *kept = dict == NULL ? NULL : PyDict_GetItemWithError(dict, key);
        if (kept == NULL) { PyErr_Clear(); return 0; }
    #if PY_VERSION_HEX < 0x030C0000
        if (Py_TYPE(kept)->tp_basicsize < (Py_ssize_t)sizeof(RunningLoopHolder)) return 0;
        return ((RunningLoopHolder *)kept)->loop == loop;
    #else
        return kept == loop;
    #endif
    #else
        return 0;
    #endif
    }

    static CYTHON_INLINE int64_t kafkaclient_system_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    """
    bint _is_kept_loop "kafkaclient_is_kept_loop" (object key, object loop)
    int64_t _system_ms "kafkaclient_system_ms" ()

cdef object RawRecord
cdef str _LOOP_KEY
cdef object _LAST_TIMESTAMP
cdef object _running_loop
cdef object _system_clock


@cython.final
cdef class AppendSlot:
    cdef _record_buffer.RecordBuffer _buffer
    cdef _delivery.BatchResult _batch_result
    cdef object _signal
    cdef Py_ssize_t _signal_at
    cdef Py_ssize_t _run_first

    @cython.locals(buffer=_record_buffer.RecordBuffer)
    cdef _delivery.Delivery put(
        self, int64_t timestamp, bytes key, bytes value, headers, Py_ssize_t headers_size
    )
    @cython.locals(first=bint)
    cdef bint count_record(self, int64_t timestamp) except -1
    cdef tuple end_run(self)
    cdef int _give_signal(self) except -1


@cython.final
cdef class TopicAppendSlots:
    cdef bint _ignore_keys
    cdef AppendSlot _unkeyed
    cdef list _by_partition

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
    cdef bint _kept
    cdef Py_ssize_t _largest
    cdef object _wall_clock_s
    cdef object _serialize

    @cython.locals(
        slots=TopicAppendSlots, serialized=bint, convert=bint, delivery=_delivery.Delivery
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
    )
    cdef _delivery.Delivery _append_bytes(
        self, TopicAppendSlots slots, value, key, partition, timestamp_ms, headers
    )
    cdef tuple _in_bytes(self, topic, value, key)
    cdef bint _at_home(self) except -1
    cdef inline int64_t _timestamp(self, timestamp_ms) except? -1


cdef bint _is_bytes(data) noexcept
cdef _frozen(data)
cdef Py_ssize_t _length(bytes data) noexcept
cdef _pairs(headers)
