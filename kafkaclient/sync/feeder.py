"""In the producer's thread: appends the records of other threads, and settles their futures."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kafkaclient.errors import BufferFullError, KafkaError, PartitionOutOfRangeError
from kafkaclient.producer.batches.delivery import BatchResult
from kafkaclient.producer.batches.waiters import Callback
from kafkaclient.sync.futures import Home, SendFuture, finish

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.sync.handover import Handover
    from kafkaclient.types import HeadersLike

T = TypeVar("T")

_RELEASE_EVERY = 256  # entries: how often callers that wait for room are told that there is some

# Plain tuples: a NamedTuple takes as long to make as everything else in a send.
One: TypeAlias = "tuple[str, Any, Any, int | None, int | None, HeadersLike]"
"""A record: topic, value, key, partition, timestamp_ms, headers."""

Many: TypeAlias = "Callable[[Producer], Coroutine[Any, Any, BulkDelivery]]"
"""A call of ``send_many``."""

Entry: TypeAlias = "tuple[Any, One | Many | None, Context, bool, float, int]"
"""What a thread hands over: (future, work, context, awaited, deadline, size).

``future`` is a SendFuture. ``work`` None: it is a plain Future, and done when all earlier entries
are appended. ``context``: the caller's context variables, among them a tracer's current span.
``awaited``: the caller
waits for the record's outcome, so its batch need not linger. ``deadline``: until when the record
may wait for buffer space, in seconds of ``time.monotonic``. ``size``: its room in the handover."""


class Feeder:
    """Appends entries in order. ``unsettled`` counts the records without an outcome."""

    def __init__(self, producer: Producer, handover: Handover[Entry], home: Home) -> None:
        self._producer = producer
        self._home = home
        self._handover = handover
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self.left: list[Entry] = []
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
        self.left = entries
        taken = 0
        try:
            while entries:
                if not self._append_now(entries[-1]):
                    self._handover.release(taken)
                    taken = 0
                    await self._append(entries[-1])
                taken += entries.pop()[-1]
                if len(entries) % _RELEASE_EVERY == 0:
                    self._handover.release(taken)
                    taken = 0
        finally:
            self._handover.release(taken)

    def fail_left(self, error: Exception) -> int:
        """Fail the entries that were not appended; returns how many there were."""
        left = [*reversed(self.left), *self._handover.take()]
        self.left = []
        for future, work, *_ in left:
            if isinstance(future, SendFuture):
                self._refuse(future, work[0] if isinstance(work, tuple) else "", error)
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
        """Append an entry, or wait until it can be appended."""
        future, work, context, awaited, deadline, _ = entry
        if work is None:
            future.set_result(None)
            return
        if not isinstance(work, tuple):
            await self._append_many(future, work, context)
            return
        topic, value, key, *rest = work
        options: Any = dict(zip(("partition", "timestamp_ms", "headers"), rest, strict=True))
        try:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    delivery = await self._in(
                        context, self._producer.send(topic, value, key, **options)
                    )
            except TimeoutError as error:
                if isinstance(error, KafkaError):
                    raise
                call = self._producer.send_nowait
                delivery = context.run(call, topic, value, key, **options)
        except BufferFullError:
            self._refuse(future, topic, _no_room(topic))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._refuse(future, topic, error)
        else:
            self._watch(future, delivery, awaited=awaited)

    async def _in(self, context: Context, call: Coroutine[Any, Any, T]) -> T:
        """Await a call that sees the context variables of its thread."""
        return await self._loop.create_task(call, context=context)

    async def _append_many(self, future: SendFuture[Any], call: Many, context: Context) -> None:
        try:
            delivery = await self._in(context, call(self._producer))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._refuse(future, "", error)
            return
        self.unsettled += delivery.records
        waiting = self._loop.create_task(self._finish_many(future, delivery))
        self._bulk.add(waiting)
        waiting.add_done_callback(self._bulk.discard)

    async def _finish_many(self, future: SendFuture[Any], delivery: BulkDelivery) -> None:
        await delivery.wait()
        self.unsettled -= delivery.records
        finish(self._home, [(future, delivery)])

    def _refuse(self, future: SendFuture[Any], topic: str, error: Exception) -> None:
        """Fail a record that was not appended. Like a delivery, it is reported if unread."""
        core = self._producer._core
        refused = BatchResult(topic, None if core is None else core.report_unobserved)
        refused.count = 1
        delivery = refused.delivery_for_last(0)
        refused.fail(error if isinstance(error, KafkaError) else KafkaError(repr(error)))
        finish(self._home, [(future, delivery)])

    async def wait_settled(self) -> None:
        """After the producer's stop: wait until each future has its outcome."""
        if self._bulk:
            await asyncio.wait(self._bulk)
        await asyncio.sleep(0)  # the batches' callbacks are due in this iteration of the loop

    # --- outcomes -------------------------------------------------------------------------------

    def _watch(self, future: SendFuture[Any], delivery: Delivery, *, awaited: bool = False) -> None:
        """Finish the future with the delivery. The records of a batch have one callback."""
        self.unsettled += 1
        batch_result = delivery._batch_result
        group = self._groups.get(batch_result)
        if group is None:
            group = self._groups[batch_result] = _Group(batch_result)
            batch_result.when_done(delivery._index, Callback(self._loop, self._settle, group, 0))
        group.members.append((future, delivery))
        end_linger = batch_result.on_only_record_awaited
        if awaited and batch_result.count == 1 and end_linger is not None:
            end_linger()

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


def _no_room(topic: str) -> BufferFullError:
    return BufferFullError(
        f"a record for topic {topic!r} found no room in buffer.memory within max.block.ms of its "
        "send. It was not sent: send more slowly, or raise buffer.memory."
    )
