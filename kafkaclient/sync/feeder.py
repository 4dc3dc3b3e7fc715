"""In the producer's thread: appends the records of other threads, and settles their futures."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.errors import (
    BufferFullError,
    KafkaError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    ProducerClosedError,
)
from kafkaclient.producer.batches.delivery import BatchResult
from kafkaclient.sync.futures import Home, SendFuture, finish

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.sync.handover import Handover
    from kafkaclient.types import HeadersLike

_RELEASE_EVERY = 256  # entries: how often callers that wait for room, and other tasks, can go on

# Plain tuples: a NamedTuple takes as long to make as everything else in a send.
One: TypeAlias = "tuple[str, Any, Any, int | None, int | None, HeadersLike]"
"""A record: topic, value, key, partition, timestamp_ms, headers."""

Entry: TypeAlias = "tuple[Any, One | Many | None, Context, bool, float, int]"
"""What a thread hands over: (future, work, context, awaited, deadline, size).

``future`` is a SendFuture. ``work`` None: it is a plain Future, and done when all earlier entries
are appended. ``context``: the caller's context variables, among them a tracer's current span.
``awaited``: the caller waits for the record's outcome, so its batch need not linger. ``deadline``:
until when the record may wait for buffer space, in seconds of ``time.monotonic``. ``size``: its
room in the handover."""


@dataclass(frozen=True, slots=True)
class Many:
    """A call of ``send_many``."""

    topic: str
    partition: int | None
    call: Callable[[Producer], Coroutine[Any, Any, BulkDelivery]]


class Feeder:
    """Appends entries in order. ``unsettled`` counts the records without an outcome.

    A full buffer holds up all entries. An entry that waits for its topic's metadata holds up only
    the later entries of the topic, which queue behind it. They leave the handover, and wait in up
    to ``buffer.memory`` bytes; beyond that, they hold up all entries.
    """

    def __init__(self, producer: Producer, handover: Handover[Entry], home: Home) -> None:
        self._producer = producer
        self._home = home
        self._handover = handover
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self.left: list[Entry] = []
        """Entries taken and not appended yet, in reverse order."""
        self._queues: dict[str, deque[Entry]] = {}
        """Entries that cannot be appended at once, by topic."""
        self._queued_bytes = 0
        self._appending: set[asyncio.Task[None]] = set()
        """One task for each queue."""
        self._groups: dict[BatchResult, _Group] = {}
        self._bulk: set[asyncio.Task[None]] = set()
        self.unsettled = 0
        self._refused_at_stop = 0

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
                break
            else:
                await self._woken.wait()
        if self._appending:
            await asyncio.wait(self._appending)

    async def _append_all(self, entries: list[Entry]) -> None:
        entries.reverse()
        self.left = entries
        taken = 0
        try:
            while entries:
                entry = entries[-1]
                behind = bool(self._queues) and _topic_of(entry[1]) in self._queues
                if not behind and self._append_now(entry):
                    entries.pop()
                else:
                    self._handover.release(taken)
                    taken = 0
                    await self._append_later(entries)
                taken += entry[-1]
                if len(entries) % _RELEASE_EVERY == 0:
                    self._handover.release(taken)
                    taken = 0
        finally:
            self._handover.release(taken)

    async def _append_later(self, entries: list[Entry]) -> None:
        """Take the last entry: wait until it is appended, or put it into its topic's queue."""
        entry = entries[-1]
        work, size = entry[1], entry[-1]
        if work is None:
            self._mark(entries.pop())
            return
        topic = _topic_of(work)
        others_wait = topic not in self._queues and not self._waits_for_metadata(topic, work)
        limit = self._producer.config.buffer_memory
        while self._queued_bytes and self._queued_bytes + size > limit:
            await asyncio.wait(self._appending, return_when=asyncio.FIRST_COMPLETED)
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = deque()
            self._start(self._append_queue(topic, queue), self._appending)
        self.unsettled += 1
        self._queued_bytes += size
        queue.append(entries.pop())
        while others_wait and self._queues.get(topic) is queue:
            await asyncio.wait(self._appending, return_when=asyncio.FIRST_COMPLETED)

    def _waits_for_metadata(self, topic: str, work: One | Many) -> bool:
        """Whether the metadata does not have the topic, or the partition that the entry names."""
        partition = work.partition if isinstance(work, Many) else work[3]
        known = self._producer.known_partitions(topic)
        return known is None or (isinstance(partition, int) and partition >= len(known))

    async def _append_queue(self, topic: str, queue: deque[Entry]) -> None:
        """Append the entries of a queue. The first one cannot be appended at once."""
        is_known, appended = False, 0
        while queue:
            entry = queue.popleft()
            self._queued_bytes -= entry[-1]
            if not (is_known and self._append_now(entry)):
                await self._append(entry)
                is_known = self._producer.known_partitions(topic) is not None
            self.unsettled -= entry[1] is not None
            appended += 1
            if appended % _RELEASE_EVERY == 0:
                await asyncio.sleep(0)
        del self._queues[topic]

    def _mark(self, entry: Entry) -> None:
        """Finish the entry's future when all earlier entries are appended."""
        appended: Future[None] = entry[0]
        left = len(self._queues)

        def reached(mark: Future[None]) -> None:
            nonlocal left
            left -= 1
            error = mark.exception()
            if error is not None and not appended.done():
                appended.set_exception(error)
            elif left == 0 and not appended.done():
                appended.set_result(None)

        for queue in self._queues.values():
            mark: Future[None] = Future()
            mark.add_done_callback(reached)
            queue.append((mark, *entry[1:]))
        if left == 0:
            appended.set_result(None)

    def _start(
        self, coroutine: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def fail_left(self, error: Exception) -> int:
        """Fail the entries whose append has not begun; returns how many there were."""
        queued = [entry for queue in self._queues.values() for entry in queue]
        self.unsettled -= sum(work is not None for _, work, *_ in queued)
        for queue in self._queues.values():
            queue.clear()
        left = [*queued, *reversed(self.left), *self._handover.take()]
        self.left = []
        for future, work, *_ in left:
            if isinstance(future, SendFuture):
                self._refuse(future, _topic_of(work), error)
            else:
                future.set_exception(error)
        return sum(work is not None for _, work, *_ in left)

    def _append_now(self, entry: Entry) -> bool:
        """Append a record without waiting; False: it has to wait, or is no single record."""
        future, work, context, awaited, _, _ = entry
        if work.__class__ is not tuple:
            return False
        topic, value, key, partition, timestamp_ms, headers = work
        try:
            delivery = context.run(
                self._producer.send_nowait,
                topic,
                value,
                key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
            )
        except (BufferFullError, PartitionOutOfRangeError):
            return False
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._refuse(future, topic, error)
        else:
            self._watch(future, delivery, awaited=awaited)
        return True

    async def _append(self, entry: Entry) -> None:
        """Append an entry, or wait until it can be appended. It has no outcome before."""
        future, work, context, awaited, deadline, _ = entry
        if work is None:
            future.set_result(None)
            return
        topic = _topic_of(work)
        if deadline < time.monotonic() and self._producer.known_partitions(topic) is None:
            self._refuse(future, topic, _no_topic(topic))
            return
        try:
            if isinstance(work, Many):
                await self._append_many(future, work, context)
            else:
                delivery = await self._send(work, context, deadline)
                self._watch(future, delivery, awaited=awaited)
        except BufferFullError as error:
            self._refuse(future, topic, error if isinstance(work, Many) else _no_room(topic))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._refused_at_stop += isinstance(error, ProducerClosedError)
            self._refuse(future, topic, error)

    async def _send(self, record: One, context: Context, deadline: float) -> Delivery:
        topic, value, key, *rest = record
        options: Any = dict(zip(("partition", "timestamp_ms", "headers"), rest, strict=True))
        send = self._producer.send(topic, value, key, **options)
        task = self._loop.create_task(send, context=context)
        await asyncio.wait({task}, timeout=max(0.0, deadline - time.monotonic()))
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            return task.result()
        return context.run(self._producer.send_nowait, topic, value, key, **options)

    async def _append_many(self, future: SendFuture[Any], many: Many, context: Context) -> None:
        broken_off: KafkaError | None = None
        try:
            delivery = await self._loop.create_task(many.call(self._producer), context=context)
        except KafkaError as error:
            if error.delivery is None or not error.delivery.records:
                raise
            delivery, broken_off = error.delivery, error
            self._refused_at_stop += isinstance(error, ProducerClosedError)
        self.unsettled += delivery.records
        self._start(self._finish_many(future, many.topic, delivery, broken_off), self._bulk)

    async def _finish_many(
        self,
        future: SendFuture[Any],
        topic: str,
        delivery: BulkDelivery,
        broken_off: KafkaError | None,
    ) -> None:
        """Finish the future when each record has its outcome. ``broken_off``: why ``send_many`` has
        appended only a part of the records."""
        await delivery.wait()
        self.unsettled -= delivery.records
        if broken_off is None:
            finish(self._home, [(future, delivery)])
            return
        failures, delivered = delivery.peek()
        broken_off.maybe_written = delivered.records > 0 or any(
            failure.error.maybe_written for failure in failures
        )
        self._refuse(future, topic, broken_off)

    def _refuse(self, future: SendFuture[Any], topic: str, error: Exception) -> None:
        """Fail a record that was not appended. Like a delivery, it is reported if unread."""
        core = self._producer._core
        refused = BatchResult(topic, None if core is None else core.report_unobserved)
        refused.count = 1
        delivery = refused.delivery_for_last(0)
        refused.fail(error if isinstance(error, KafkaError) else KafkaError(repr(error)))
        finish(self._home, [(future, delivery)])

    async def wait_settled(self) -> int:
        """After the producer's stop: wait until each future has its outcome. Returns how many
        entries the stop has kept from being appended."""
        while tasks := self._appending | self._bulk:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # the batches' callbacks are due in this iteration of the loop
        return self._refused_at_stop

    # --- outcomes -------------------------------------------------------------------------------

    def _watch(self, future: SendFuture[Any], delivery: Delivery, *, awaited: bool = False) -> None:
        """Finish the future with the delivery. The records of a batch have one callback."""
        self.unsettled += 1
        batch_result = delivery.batch_result
        group = self._groups.get(batch_result)
        if group is None:
            group = self._groups[batch_result] = _Group(batch_result)
            delivery.when_settled(self._settle, group, awaited)
        group.members.append((future, delivery))

    def _settle(self, group: _Group) -> None:
        del self._groups[group.batch_result]
        members = group.members
        self.unsettled -= len(members)
        if not group.batch_result.done:  # the batch was split, or the record was held
            for future, delivery in members:
                if not delivery.done():
                    self._watch(future, delivery)
            members = [member for member in members if member[1].done()]
        finish(self._home, members)


class _Group:
    """The records of one batch, and their futures."""

    __slots__ = ("batch_result", "members")

    def __init__(self, batch_result: BatchResult) -> None:
        self.batch_result = batch_result
        self.members: list[tuple[SendFuture[Any], Delivery]] = []


def _topic_of(work: One | Many | None) -> str:
    """The topic as a plain str: a subclass, such as an enum, may have another hash. Empty if it
    is no string, which the producer refuses."""
    topic = work.topic if isinstance(work, Many) else None if work is None else work[0]
    return str.__str__(topic) if isinstance(topic, str) else ""


def _no_topic(topic: str) -> MetadataTimeoutError:
    return MetadataTimeoutError(
        f"no metadata of topic {topic!r} within max.block.ms of the send: earlier records of the "
        "topic waited for it. The record was not sent."
    )


def _no_room(topic: str) -> BufferFullError:
    return BufferFullError(
        f"a record for topic {topic!r} found no room in buffer.memory within max.block.ms of its "
        "send. It was not sent: send more slowly, or raise buffer.memory."
    )
