# cython: language_level=3, wraparound=False, cdivision=True
"""The compiled twin of ``_fastpath_py.py``: the same names and behaviour.

A record's way through this file: :meth:`DirectAppend.send_nowait` -> ``DirectAppend.put`` (is everything
usual about it?) -> ``TopicAppendSlots.slot_for`` (which batch?) -> ``AppendSlot.put`` (into its buffer).
"""

import asyncio
import time

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kafkaclient.producer.batches._delivery cimport Delivery, BatchResult
from kafkaclient.wire._murmur2 cimport hash_raw
from kafkaclient.wire._records cimport RecordBuffer

__all__ = ["DirectAppend", "AppendSlot", "TopicAppendSlots"]

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030C0000
    typedef struct { PyObject_HEAD PyObject *loop; } RunningLoopHolder;
    #endif

    /* The event loop that runs in this thread, where asyncio keeps it: in the thread's dictionary,
       before Python 3.12 inside of an object of its own. NULL: not known, asyncio has to be asked.
       Asking takes a Python call, and before 3.12 a system call. */
    static PyObject *kept_running_loop(PyObject *key) {
    #if PY_VERSION_HEX < 0x030E0000 && defined(CYTHON_COMPILING_IN_CPYTHON) && CYTHON_COMPILING_IN_CPYTHON
        PyObject *dict = PyThreadState_GetDict();
        PyObject *kept = dict == NULL ? NULL : PyDict_GetItemWithError(dict, key);
        if (kept == NULL) { PyErr_Clear(); return NULL; }
    #if PY_VERSION_HEX < 0x030C0000
        if (Py_TYPE(kept)->tp_basicsize < (Py_ssize_t)sizeof(RunningLoopHolder)) return NULL;
        return ((RunningLoopHolder *)kept)->loop;
    #else
        return kept;
    #endif
    #else
        return NULL;
    #endif
    }
    """
    PyObject* kept_running_loop(object key) noexcept

cdef str KEY = "__asyncio_running_event_loop__"
cdef object running_loop = asyncio._get_running_loop
cdef object system_clock = time.time
cdef tuple NO_HEADERS = ()


cdef class AppendSlot:
    """An open batch that takes records without anybody being asked, until it has not the room or
    the slot is cut. ``signal()`` is called once, when it has grown to ``signal_at`` bytes."""

    def __init__(self, RecordBuffer buffer not None, BatchResult batch_result not None, signal_at, signal):
        self._buffer = buffer
        self._batch_result = batch_result
        self._signal = signal
        self._signal_at = signal_at
        self._run_first = -1

    def invalidate(self):
        """Take nothing any more, and hold on to nothing."""
        self._buffer = self._signal = None

    cdef Delivery put(self, int64_t timestamp, bytes key, bytes value):
        """Add a record; None: it has to go the long way."""
        if self._buffer is None or not self._buffer.put(timestamp, key, value, None):
            return None
        self._batch_result.count += 1
        cdef Delivery delivery = self._batch_result.delivery_of_last(timestamp)
        if self._signal is not None and self._buffer._size >= self._signal_at:
            self.give_signal()
        return delivery

    cdef uint8_t* begin(self, int64_t timestamp, Py_ssize_t fields) except? NULL:
        """Add a record without a handle, and return where its ``fields`` bytes are to be written,
        before :meth:`end` is called; NULL: it has to go the long way."""
        if self._buffer is None:
            return NULL
        return self._buffer.begin(timestamp, fields)

    cdef int end(self, int64_t timestamp) except -1:
        self._batch_result.count += 1
        if self._batch_result.on_delivery is not None:
            self._batch_result.delivery_of_last(timestamp)  # the hook is owed it
        if self._signal is not None and self._buffer._size >= self._signal_at:
            self.give_signal()
        return 0

    cdef int give_signal(self) except -1:
        signal, self._signal = self._signal, None
        signal()
        return 0


cdef class TopicAppendSlots:
    """The slots of one topic: for records without partition, and by partition. With
    ``ignore_keys`` a key says nothing about the partition."""

    def __init__(self, *, ignore_keys=False):
        self._ignore_keys = ignore_keys
        self._by_partition = []

    def reset(self, partitions):
        """Take all slots away; the topic has so many partitions."""
        self._unkeyed = None
        self._by_partition = [None] * partitions

    def set_unkeyed(self, AppendSlot slot):
        """The slot for records whose partition is chosen by load."""
        self._unkeyed = slot

    def set(self, Py_ssize_t partition, AppendSlot slot):
        """The slot for records that belong to a partition."""
        if partition < len(self._by_partition):
            self._by_partition[partition] = slot

    cdef AppendSlot slot_for(self, partition, bytes key):
        cdef Py_ssize_t at = -1
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < len(self._by_partition):
                return None
            at = partition
        if key is None:
            return self.find(at, NULL, -1)
        return self.find(at, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))

    cdef AppendSlot find(self, Py_ssize_t partition, const uint8_t* key, Py_ssize_t key_size):
        """``partition`` -1: to be chosen, ``key_size`` -1: there is no key."""
        cdef Py_ssize_t count = len(self._by_partition)
        if partition < 0:
            if key_size < 0 or self._ignore_keys:
                return self._unkeyed
            if count == 0:
                return None
            partition = (hash_raw(key, key_size) & 0x7FFFFFFF) % <uint32_t>count
        elif partition >= count:
            return None
        return self._by_partition[partition]


cdef class DirectAppend:
    """What the producer is called by most; ``_send_slowly`` in it is the long way."""

    cdef dict _slots
    cdef object _home
    cdef bint _kept
    cdef Py_ssize_t _largest
    cdef object _stamp

    def _open_direct_append(self, slots, loop, largest, wall_clock):
        """From now on records go through ``slots``, if they are of at most ``largest`` bytes."""
        self._slots, self._home, self._largest = slots, loop, largest
        self._stamp = None if wall_clock is system_clock else wall_clock
        # Called in the event loop: this shows whether asyncio keeps it where it is looked for.
        self._kept = kept_running_loop(KEY) == <PyObject*>loop

    def _close_direct_append(self):
        self._slots = None

    cdef Delivery put(self, topic, value, key, partition, timestamp_ms, headers):
        """Put a record through its slot; None: it has to go the long way."""
        if self._slots is None or type(topic) is not str:
            return None
        cdef TopicAppendSlots slots = self._slots.get(topic)
        if slots is None or not self.at_home():
            return None
        cdef Py_ssize_t size = 0
        if value is not None:
            if type(value) is not bytes:
                return None
            size = len(<bytes>value)
        if key is not None:
            if type(key) is not bytes:
                return None
            size += len(<bytes>key)
        cdef AppendSlot slot = slots.slot_for(partition, <bytes>key)
        if slot is None or size > self._largest or headers is not NO_HEADERS:
            return None
        cdef int64_t timestamp
        if timestamp_ms is None:
            timestamp = self.now_ms()
            if timestamp < 0:
                return None
        elif type(timestamp_ms) is int and 0 <= timestamp_ms <= 0x7FFFFFFFFFFFFFFF:
            timestamp = timestamp_ms
        else:
            return None
        return slot.put(timestamp, <bytes>key, <bytes>value)

    cdef bint at_home(self) except -1:
        """Whether the producer's event loop runs, in this thread."""
        if self._kept:
            return kept_running_loop(KEY) == <PyObject*>self._home
        return running_loop() is self._home

    cdef int64_t now_ms(self) except? -1:
        cdef timespec now
        if self._stamp is not None:
            return int(self._stamp() * 1000)
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000

    def _put(self, topic, value, key, partition, timestamp_ms, headers):
        return self.put(topic, value, key, partition, timestamp_ms, headers)

    def send_nowait(
        self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=()
    ):
        """Like :meth:`send`, but never waits.

        A record for a topic whose metadata is not known yet is kept until it is, or fails after
        ``max.block.ms``. A loop of calls must await something now and then, or nothing is sent.

        Raises:
            BufferFullError: ``buffer.memory`` is used up, or others wait for it already.
        """
        cdef Delivery delivery = self.put(topic, value, key, partition, timestamp_ms, headers)
        if delivery is None:
            return self._send_slowly(topic, value, key, partition, timestamp_ms, headers)
        return delivery
