"""The pure-Python twin of ``_fastpath.pyx``; see ``fastpath.py``."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.producer.batches.delivery import BatchResult, Delivery, Run
    from kafkaclient.types import Headers, HeadersLike
    from kafkaclient.wire.records import BatchBuilder

__all__ = ["AppendSlot", "DirectAppend", "TopicAppendSlots"]

_LAST_TIMESTAMP = 2**63 - 1


class AppendSlot:
    """An open batch that takes records without anybody being asked, until it has not the room or
    the tap is cut. ``signal()`` is called once, when it has grown to ``signal_at`` bytes."""

    __slots__ = ("_batch_result", "_buffer", "_signal", "_signal_at")

    def __init__(
        self,
        buffer: BatchBuilder,
        batch_result: BatchResult,
        signal_at: int,
        signal: Callable[[], None],
    ) -> None:
        self._buffer: BatchBuilder | None = buffer
        self._batch_result = batch_result
        self._signal: Callable[[], None] | None = signal
        self._signal_at = signal_at

    def invalidate(self) -> None:
        """Take nothing any more, and hold on to nothing."""
        self._buffer = self._signal = None

    def put(self, timestamp: int, key: Any, value: Any) -> Delivery | None:
        """Add a record; None: it has to go the long way."""
        batch_result, buffer = self._batch_result, self._buffer
        if buffer is None or not buffer.append(timestamp, key, value):
            return None
        batch_result.count += 1
        delivery = batch_result.delivery_for_last(timestamp)
        if buffer.size >= self._signal_at and self._signal is not None:
            signal, self._signal = self._signal, None
            signal()
        return delivery

    @property
    def count(self) -> int:
        """How many records its batch has."""
        return self._batch_result.count

    def pour(self, timestamp: int, key: Any, value: Any, headers: Headers) -> bool:
        """Add a record without a handle; False: it has to go the long way."""
        batch_result, buffer = self._batch_result, self._buffer
        if buffer is None or not buffer.append(timestamp, key, value, headers):
            return False
        batch_result.count += 1
        if batch_result.on_delivery is not None:
            batch_result.delivery_for_last(timestamp)  # the hook is owed it
        if buffer.size >= self._signal_at and self._signal is not None:
            signal, self._signal = self._signal, None
            signal()
        return True

    def run_from(self, first: int) -> Run:
        """The records from the index ``first`` on, which somebody else than a handle stands for."""
        count = self._batch_result.count - first
        self._batch_result.live_deliveries += count
        return self._batch_result, first, count


class TopicAppendSlots:
    """The taps of one topic: for records without partition, and by partition. With
    ``ignore_keys`` a key says nothing about the partition."""

    __slots__ = ("_by_partition", "_ignore_keys", "_unkeyed")

    def __init__(self, *, ignore_keys: bool = False) -> None:
        self._ignore_keys = ignore_keys
        self._unkeyed: AppendSlot | None = None
        self._by_partition: list[AppendSlot | None] = []

    def reset(self, partitions: int) -> None:
        """Take all taps away; the topic has so many partitions."""
        self._unkeyed = None
        self._by_partition = [None] * partitions

    def set_unkeyed(self, slot: AppendSlot | None) -> None:
        """The tap for records whose partition is chosen by load."""
        self._unkeyed = slot

    def set(self, partition: int, slot: AppendSlot | None) -> None:
        """The tap for records that belong to a partition."""
        if partition < len(self._by_partition):
            self._by_partition[partition] = slot

    def get(self, partition: int | None, key: bytes | None) -> AppendSlot | None:
        slots = self._by_partition
        if partition is not None:
            fits = type(partition) is int and 0 <= partition < len(slots)
            return slots[partition] if fits else None
        if key is None or self._ignore_keys:
            return self._unkeyed
        return slots[partition_for_key(key, len(slots))] if slots else None


class DirectAppend:
    """What the producer is called by most; ``send_slowly`` in it is the long way."""

    _slots: dict[str, TopicAppendSlots] | None = None
    _home: asyncio.AbstractEventLoop | None = None
    _largest = 0
    _stamp: Callable[[], float] = staticmethod(time.time)

    def _open_direct_append(
        self,
        slots: dict[str, TopicAppendSlots],
        loop: asyncio.AbstractEventLoop,
        largest: int,
        wall_clock: Callable[[], float],
    ) -> None:
        """From now on records go through ``taps``, if they are of at most ``largest`` bytes."""
        self._slots, self._home, self._largest, self._stamp = slots, loop, largest, wall_clock

    def _close_direct_append(self) -> None:
        self._slots = None

    def _put(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike,
    ) -> Delivery | None:
        """Put a record through its tap; None: it has to go the long way."""
        if self._slots is None or type(topic) is not str or headers:
            return None
        slots = self._slots.get(topic)
        if slots is None or asyncio._get_running_loop() is not self._home:
            return None
        if not (type(value) is bytes or value is None) or not (type(key) is bytes or key is None):
            return None
        slot = slots.get(partition, key)
        if slot is None or len(key or b"") + len(value or b"") > self._largest:
            return None
        if timestamp_ms is None:
            timestamp_ms = int(self._stamp() * 1000)
        elif type(timestamp_ms) is not int or not 0 <= timestamp_ms <= _LAST_TIMESTAMP:
            return None
        return slot.put(timestamp_ms, key, value)

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
        delivery = self._put(topic, value, key, partition, timestamp_ms, headers)
        if delivery is None:
            return self._send_slowly(topic, value, key, partition, timestamp_ms, headers)
        return delivery

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike,
    ) -> Delivery:
        raise NotImplementedError
