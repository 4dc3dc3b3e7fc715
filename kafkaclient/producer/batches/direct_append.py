# cython: wraparound=False, cdivision=True
"""From the arguments of ``send`` into the open batch, for the great majority of records.

An unusual record takes the slow way, through ``admission/`` and ``accumulator.py``. When the slow
way has put a record into a batch that the next record would join without any further decision, it
installs an :class:`AppendSlot` for that batch. The next records go through the slot straight into
the batch's buffer.

A record's way through this file: :meth:`DirectAppend.send_nowait` -> ``DirectAppend._try_append``
(may it use a slot? its serializers) -> ``DirectAppend._append_bytes`` (is it a usual record?) ->
``TopicAppendSlots.slot_for`` (which batch?) -> ``AppendSlot.put`` (into its buffer).
``direct_append.pxd`` has the C types.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import cython

from kafkaclient.producer.batches.record import RawRecord

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kafkaclient.producer.batches.batch_result import BatchResult, Run
    from kafkaclient.types import Headers, HeadersLike
    from kafkaclient.wire.record_buffer import RecordBuffer

__all__ = ["AppendSlot", "DirectAppend", "TopicAppendSlots"]

_LAST_TIMESTAMP = 2**63 - 1
_system_clock = time.time

if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)
    from kafkaclient.producer.batches.delivery import Delivery, delivery_for_last
    from kafkaclient.producer.batches.waiters import runs_here
    from kafkaclient.wire.murmur2 import hash_bytes
    from kafkaclient.wire.record_buffer import headers_size

    def _system_ms() -> int:
        return int(time.time() * 1000)

    _coarse_ms = _system_ms


class AppendSlot:
    """An open batch that takes records without further decisions, until it is full or closed.

    ``signal()`` is called once, when the batch has grown to ``signal_at`` bytes.
    """

    __slots__ = ("_batch_result", "_buffer", "_run_first", "_signal", "_signal_at")

    def __init__(
        self,
        buffer: RecordBuffer,
        batch_result: BatchResult,
        signal_at: int,
        signal: Callable[[], None],
    ) -> None:
        self._buffer: RecordBuffer | None = buffer
        self._batch_result = batch_result
        self._signal: Callable[[], None] | None = signal
        self._signal_at = signal_at
        self._run_first = -1  # or the index of the first record of a run: see rows.py

    def invalidate(self) -> None:
        """Take no more records, and keep no references."""
        self._buffer = self._signal = None

    def put(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        headers_size: int,
    ) -> Delivery | None:
        """Add a record; None: the record has to take the slow way."""
        buffer = self._buffer
        if buffer is None or not buffer.put(timestamp, key, value, headers, headers_size):
            return None
        self._batch_result.count += 1
        delivery = delivery_for_last(self._batch_result, timestamp)
        if self._signal is not None and buffer.size >= self._signal_at:
            self._give_signal()
        return delivery

    def count_record(self, timestamp: int) -> bool:
        """Count a record that was put into the buffer without a delivery; whether it is the first
        of a run, which :meth:`end_run` ends."""
        first = self._run_first < 0
        if first:
            self._run_first = self._batch_result.count
        self._batch_result.count += 1
        if self._batch_result.on_delivery is not None:
            delivery_for_last(self._batch_result, timestamp)  # on_delivery is called with it
        assert self._buffer is not None
        if self._signal is not None and self._buffer.size >= self._signal_at:
            self._give_signal()
        return first

    def end_run(self) -> Run:
        """The records counted since the last call, for which the caller stands from now on."""
        first, self._run_first = self._run_first, -1
        count = self._batch_result.count - first
        self._batch_result.live_deliveries += count
        return self._batch_result, first, count

    def _give_signal(self) -> None:
        signal, self._signal = self._signal, None
        assert signal is not None
        signal()


class TopicAppendSlots:
    """The slots of one topic: for records without partition, and by partition. With
    ``ignore_keys`` the partition does not depend on the key. ``clock`` (seconds) decides when a
    slot expires. None: the system clock, which a record without timestamp reads anyway.
    """

    __slots__ = ("_by_partition", "_clock_s", "_ignore_keys", "_unkeyed", "_until_ms")

    def __init__(
        self, *, ignore_keys: bool = False, clock: Callable[[], float] | None = None
    ) -> None:
        self._ignore_keys = ignore_keys
        self._clock_s = clock
        self._unkeyed: AppendSlot | None = None
        self._by_partition: list[AppendSlot | None] = []
        self._until_ms = _LAST_TIMESTAMP
        """Until when the slots may be used, by ``clock``."""

    def reset(self, partitions: int) -> None:
        """Remove all slots; the topic has ``partitions`` partitions."""
        self._unkeyed = None
        self._by_partition = [None] * partitions
        self._until_ms = _LAST_TIMESTAMP

    def now_ms(self) -> int:
        """The current time of the clock that expires slots."""
        return _coarse_ms() if self._clock_s is None else int(self._clock_s() * 1000)

    def use_for(self, seconds: float) -> None:
        """No slot may be used later than ``seconds`` from now: its batch would be too old. A timer
        would be too late while the event loop is blocked or the process is suspended."""
        self._until_ms = min(self._until_ms, self.now_ms() + int(seconds * 1000))

    def remove_old(self, now_ms: int) -> None:
        """Remove all slots if one may be too old at ``now_ms``."""
        if now_ms > self._until_ms:
            self.reset(len(self._by_partition))

    def set_unkeyed(self, slot: AppendSlot | None) -> None:
        """The slot for records whose partition is chosen by load."""
        self._unkeyed = slot

    def set(self, partition: int, slot: AppendSlot | None) -> None:
        """The slot for records that belong to a partition."""
        if partition < len(self._by_partition):
            self._by_partition[partition] = slot

    def knows(self, partition: int | None) -> bool:
        """Whether ``partition``, as ``send`` takes it, is None or a partition of the topic."""
        return partition is None or (
            type(partition) is int and 0 <= partition < len(self._by_partition)
        )

    def slot_for(self, partition: int | None, key: bytes | None) -> AppendSlot | None:
        """The slot for a record as ``send`` takes it; None: there is none."""
        if not self.knows(partition):
            return None
        at = -1 if partition is None else partition
        if key is None:
            return self.find(at, b"", -1)
        return self.find(at, key, len(key))

    def find(self, partition: int, key: bytes, key_size: int) -> AppendSlot | None:
        """``partition`` -1: to be chosen, ``key_size`` -1: no key. Compiled, ``key`` is a C
        pointer."""
        count = len(self._by_partition)
        if partition < 0:
            if key_size < 0 or self._ignore_keys:
                return self._unkeyed
            if count == 0:
                return None
            partition = (hash_bytes(key, key_size) & 0x7FFFFFFF) % count
        elif partition >= count:
            return None
        return self._by_partition[partition]


class DirectAppend:
    """The producer's ``send`` and ``send_nowait``; the producer has the slow ways, ``_append`` and
    ``_send_slowly``. Compiled, a coroutine costs half as much as one of Python's."""

    if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)
        _slots: dict[str, TopicAppendSlots] | None = None
        _home: asyncio.AbstractEventLoop | None = None
        _largest = 0
        _wall_clock_s: Callable[[], float] | None = None
        _serialize: Callable[[str, Any, Any, Any], tuple[Any, Any, Any]] | None = None

    def _open_direct_append(
        self,
        slots: dict[str, TopicAppendSlots],
        loop: asyncio.AbstractEventLoop,
        largest: int,
        wall_clock: Callable[[], float],
        serialize: Callable[[str, Any, Any, Any], tuple[Any, Any, Any]] | None = None,
    ) -> None:
        """From now on records of at most ``largest`` bytes go through ``slots``.

        ``serialize(topic, value, key, headers)`` returns the value and the key in bytes, and the
        headers; None: they are in bytes already."""
        self._slots, self._home, self._largest = slots, loop, largest
        self._wall_clock_s = None if wall_clock is _system_clock else wall_clock
        self._serialize = serialize

    def _close_direct_append(self) -> None:
        self._slots = None

    def _try_append(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike,
    ) -> Delivery | RawRecord:
        """Put a record through its slot; or the record, which has to take the slow way."""
        slots, in_bytes = self._slots_of(topic), False
        ready = self._serialize is None and _is_bytes(value) and _is_bytes(key)
        if not ready and slots is not None and slots.knows(partition):
            value, key, headers = self._in_bytes(topic, value, key, headers)
            ready = in_bytes = True
            slots = self._slots_of(topic)  # serializers are user code
        if ready and slots is not None:
            delivery = self._append_bytes(slots, value, key, partition, timestamp_ms, headers)
            if delivery is not None:
                return delivery
        return RawRecord(topic, value, key, partition, timestamp_ms, headers, in_bytes)

    def _slots_of(self, topic: Any) -> TopicAppendSlots | None:
        """The slots of a topic; None: its records have to take the slow way."""
        if self._slots is None or type(topic) is not str:
            return None
        slots = self._slots.get(topic)
        return slots if slots is not None and runs_here(self._home) else None

    def _append_bytes(
        self,
        slots: TopicAppendSlots,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike,
    ) -> Delivery | None:
        """Put a record in bytes through its slot; None: the record has to take the slow way."""
        if not (_is_bytes(value) and _is_bytes(key)):
            return None
        # Compiled, these have the C type of bytes.
        key_bytes, value_bytes = key, value
        timestamp = self._timestamp(timestamp_ms)
        is_now = timestamp_ms is None and self._wall_clock_s is None and slots._clock_s is None
        slots.remove_old(timestamp if is_now else slots.now_ms())
        slot = slots.slot_for(partition, key_bytes)
        if slot is None or timestamp < 0:
            return None
        pairs = _pairs(headers)
        # From here to the end no user code runs, which could change the pairs.
        encoded = headers_size(pairs)
        if encoded < 0 or encoded + _length(key_bytes) + _length(value_bytes) > self._largest:
            return None
        return slot.put(timestamp, key_bytes, value_bytes, pairs, encoded)

    def _in_bytes(
        self, topic: str, value: Any, key: Any, headers: HeadersLike
    ) -> tuple[Any, Any, Any]:
        """(value, key, headers) after the serializers, with mutable buffers copied. A value that
        has to wait for its serializer is no buffer, and takes the slow way."""
        if self._serialize is not None:
            value, key, headers = self._serialize(topic, value, key, headers)
        return _frozen(value), _frozen(key), headers

    def _timestamp(self, timestamp_ms: int | None) -> int:
        """The record's timestamp; negative if the slow way has to check it."""
        if timestamp_ms is None:
            return _system_ms() if self._wall_clock_s is None else int(self._wall_clock_s() * 1000)
        if type(timestamp_ms) is int and 0 <= timestamp_ms <= _LAST_TIMESTAMP:
            return timestamp_ms
        return -1

    def _put(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike,
    ) -> Delivery | RawRecord:
        """For ``Producer.send_and_wait``: compiled, ``_try_append`` is a C function, which Python
        code cannot call."""
        return self._try_append(topic, value, key, partition, timestamp_ms, headers)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Hand over a record; await the returned :class:`Delivery` for its acknowledgement.

        The call waits only for the topic's metadata and for buffer space, for both together up to
        ``max.block.ms``. If the call is cancelled while it waits, the record is not sent. Once the
        call has returned, the record is sent even if the caller is cancelled.

        Parameters: ``value`` and ``key`` are bytes (or objects that the serializers turn into
        bytes); None is no value (a tombstone) or no key. Records with the same key go to the same
        partition (murmur2, as in Java), records without key to a partition chosen by load;
        ``partition`` overrides both. ``timestamp_ms``: milliseconds since the epoch, default now.
        ``headers``: pairs of a str and bytes or None, or a mapping.

        Raises:
            InvalidRecordError: the record is not acceptable (also InvalidTopicError,
                SerializationError, RecordTooLargeError, PartitionOutOfRangeError,
                PartitionerError).
            MetadataTimeoutError: the topic's metadata did not arrive within ``max.block.ms``.
            BufferFullError: ``buffer.memory`` stayed full for ``max.block.ms``.
            DeliveryTimeoutError: the serializer of an earlier record of the topic has not finished
                within ``max.block.ms``.
            BrokerError: a broker refused, for example access to the topic.
            ProducerStateError: the producer is not running, or has a ``transactional.id`` and no
                transaction is open.
            TransactionAbortableError: a record or request of the transaction has failed.
        """
        done = self._try_append(topic, value, key, partition, timestamp_ms, headers)
        return done if isinstance(done, Delivery) else await self._append(done)

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Like :meth:`send`, but never waits.

        A record for a topic whose metadata is not known yet is kept until it is, or fails after
        ``max.block.ms``. A loop of calls must await something now and then, or nothing is sent.

        Raises:
            BufferFullError: ``buffer.memory`` is used up, or others wait for it already.
        """
        done = self._try_append(topic, value, key, partition, timestamp_ms, headers)
        return done if isinstance(done, Delivery) else self._send_slowly(done)

    if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)

        async def _append(self, raw: RawRecord) -> Delivery:
            raise NotImplementedError

        def _send_slowly(self, raw: RawRecord) -> Delivery:
            raise NotImplementedError


def _is_bytes(data: Any) -> bool:
    """Whether the data are bytes or None, as in most records."""
    return data is None or type(data) is bytes


def _frozen(data: Any) -> Any:
    """A buffer that may change, as bytes; anything else as it is."""
    if type(data) is bytearray or type(data) is memoryview:
        try:
            return bytes(data)
        except ValueError:  # a released memoryview: the slow way raises the error
            pass
    return data


def _length(data: bytes | None) -> int:
    return 0 if data is None else len(data)


def _pairs(headers: HeadersLike) -> Any:
    if headers is None:
        return ()
    return list(headers.items()) if type(headers) is dict else headers
