"""In the producer's thread: appends the records of other threads, and settles their futures."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kafkaclient.errors import BufferFullError, KafkaError, PartitionOutOfRangeError
from kafkaclient.producer.batches.waiters import Callback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkaclient.producer.batches.delivery import BatchResult, Delivery
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.sync.futures import SendFuture
    from kafkaclient.sync.handover import Handover
    from kafkaclient.types import Headers

_RELEASE_EVERY = 256  # entries: how often callers that wait for room are told that there is some


class One(NamedTuple):
    """A record. ``awaited``: the caller waits for the outcome, so the batch need not linger."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: Headers
    awaited: bool


Many: TypeAlias = "Callable[[Producer], Awaitable[BulkDelivery]]"
"""A call of ``send_many``."""


class Entry(NamedTuple):
    """What a thread hands over. ``deadline``: until when it waits for buffer space, in seconds of
    ``time.monotonic``. ``size`` is the entry's room in the handover.

    ``work`` is a record, a call of ``send_many``, or None: the future is settled when all earlier
    entries are appended."""

    future: SendFuture[Any]
    work: One | Many | None
    deadline: float
    size: int


class Feeder:
    """Appends entries in order. ``unsettled`` counts the records without an outcome."""

    def __init__(self, producer: Producer, handover: Handover[Entry]) -> None:
        self._producer = producer
        self._handover = handover
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._left: list[Entry] = []
        """Taken and not appended yet, the last first."""
        self._groups: dict[BatchResult, _Group] = {}
        self._bulk: set[asyncio.Task[None]] = set()
        self.unsettled = 0

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Append entries until the handover is closed and empty."""
        handover = self._handover
        while True:
            self._woken.clear()
            closed = handover.closed  # asked first: nothing comes after it
            entries = handover.take()
            if entries:
                await self._append_all(entries)
                await asyncio.sleep(0)  # the sender's turn
            elif closed:
                return
            else:
                await self._woken.wait()

    async def _append_all(self, entries: list[Entry]) -> None:
        entries.reverse()
        self._left = entries
        size = 0
        try:
            while entries:
                entry = entries[-1]
                work = entry.work
                if work.__class__ is not One or not self._append_now(entry.future, work):
                    self._handover.release(size)
                    size = 0
                    await self._append(entry)
                entries.pop()
                size += entry.size
                if len(entries) % _RELEASE_EVERY == 0:
                    self._handover.release(size)
                    size = 0
        finally:
            self._handover.release(size)

    def fail_left(self, error: Exception) -> int:
        """Fail the entries that were not appended; returns how many records they were."""
        left = [*reversed(self._left), *self._handover.take()]
        self._left = []
        for entry in left:
            entry.future.settle(None, error)
        return sum(entry.work is not None for entry in left)

    def _append_now(self, future: SendFuture[Any], record: One) -> bool:
        """Append a record without waiting; False: it has to wait."""
        topic, value, key, partition, timestamp_ms, headers, awaited = record
        try:
            delivery = self._producer.send_nowait(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        except (BufferFullError, PartitionOutOfRangeError):
            return False
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.settle(None, error)
            return True
        self._watch(future, delivery, awaited=awaited)
        return True

    async def _append(self, entry: Entry) -> None:
        """Append an entry, or wait until it can be appended."""
        future, work, deadline, _ = entry
        if work is None:
            future.settle(None)
            return
        if not isinstance(work, One):
            await self._append_many(future, work)
            return
        topic, value, key, partition, timestamp_ms, headers, awaited = work
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                delivery = await self._producer.send(
                    topic,
                    value,
                    key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                )
        except KafkaError as error:
            future.settle(None, error)
        except TimeoutError:
            future.settle(None, _no_room(topic))
        else:
            self._watch(future, delivery, awaited=awaited)

    async def _append_many(self, future: SendFuture[Any], call: Many) -> None:
        try:
            delivery = await call(self._producer)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.settle(None, error)
            return
        self.unsettled += delivery.records
        waiting = self._loop.create_task(self._settle_many(future, delivery))
        self._bulk.add(waiting)
        waiting.add_done_callback(self._bulk.discard)

    async def _settle_many(self, future: SendFuture[Any], delivery: BulkDelivery) -> None:
        try:
            metadata = await delivery
        except KafkaError as error:
            delivery.unread()
            future.settle_unread(error, delivery)
        else:
            future.settle(metadata)
        finally:
            self.unsettled -= delivery.records

    async def wait_settled(self) -> None:
        """After the producer's stop: wait until each future has its outcome."""
        if self._bulk:
            await asyncio.wait(self._bulk)
        await asyncio.sleep(0)  # the batches' callbacks are due in this iteration of the loop

    # --- outcomes -------------------------------------------------------------------------------

    def _watch(self, future: SendFuture[Any], delivery: Delivery, *, awaited: bool = False) -> None:
        """Settle the future with the delivery. The records of a batch have one callback."""
        self.unsettled += 1
        batch_result = delivery._batch_result
        group = self._groups.get(batch_result)
        if group is None:
            group = self._groups[batch_result] = _Group(batch_result)
            batch_result.when_done(delivery._index, Callback(self._loop, self._settle, group, 0))
        group.members.append((future, delivery))
        if awaited and batch_result.count == 1 and batch_result.awaited is not None:
            batch_result.awaited()

    def _settle(self, group: _Group) -> None:
        del self._groups[group.batch_result]
        for future, delivery in group.members:
            self.unsettled -= 1
            if not delivery.done():  # the batch was split
                self._watch(future, delivery)
                continue
            part, index = delivery._batch_result.resolve_index(delivery._index)
            error = part.error_of(index)
            if error is None:
                future.settle(delivery.result())
            else:
                future.settle_unread(error.for_one(), delivery)


class _Group:
    """The records of one batch, and their futures."""

    __slots__ = ("batch_result", "members")

    def __init__(self, batch_result: BatchResult) -> None:
        self.batch_result = batch_result
        self.members: list[tuple[SendFuture[Any], Delivery]] = []


def _no_room(topic: str) -> BufferFullError:
    return BufferFullError(
        f"a record for topic {topic!r} found no room in buffer.memory within max.block.ms of its "
        "send. It was not sent: send more slowly, or raise buffer.memory."
    )
