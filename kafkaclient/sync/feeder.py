"""In the producer's thread: appends other threads' records in order, and gives futures outcomes.

An entry that the thread has taken is in one of three states. *Queued*: the feeder has it.
*Appended*: :class:`Outcomes` has its delivery. *Settled*: its future has the outcome.
:meth:`Outcomes.taken`, :meth:`~Outcomes.appended` (or :meth:`~Outcomes.appended_many`) and
``_settle``, which :meth:`~Outcomes.refuse` calls at once, are the transitions. No other code counts
records or finishes futures.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import (
    BufferFullError,
    KafkaError,
    PartitionOutOfRangeError,
    ProducerClosedError,
)
from kafkaclient.producer.admission.admission import CALL_DEADLINE
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import delivery_for_last
from kafkaclient.sync.futures import SendFuture, finish
from kafkaclient.sync.handover import Many, records_in, topic_of
from kafkaclient.time_limit import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.sync.futures import FutureState, Outcome
    from kafkaclient.sync.handover import Entry, Handover, One


class Outcomes:
    """The futures of one producer thread that have no outcome yet.

    ``unsettled``: how many records that is; a ``send_many`` counts once until it is appended.
    ``report_unobserved(batch_result, error, records)`` is called for refused records whose future
    is freed before its outcome was read.
    """

    def __init__(
        self,
        state: FutureState,
        report_unobserved: Callable[[BatchResult, KafkaError, int], None],
    ) -> None:
        self._state = state
        self._report_unobserved = report_unobserved
        self._loop = asyncio.get_running_loop()
        self._batches: dict[BatchResult, list[tuple[SendFuture[Any], Delivery]]] = {}
        """The records of each batch. They have one callback together."""
        self._bulk: set[asyncio.Task[None]] = set()
        """One task for each ``send_many``."""
        self.unsettled = 0

    def taken(self, records: int) -> None:
        """The thread has taken entries; each of them is one record, or one ``send_many``."""
        self.unsettled += records

    def appended(
        self, future: SendFuture[Any], delivery: Delivery, *, awaited: bool = False
    ) -> None:
        """The record is in a batch, which may be done already."""
        batch_result = delivery.batch_result
        members = self._batches.get(batch_result)
        if members is None:
            members = self._batches[batch_result] = []
            delivery.when_settled(self._on_batch_done, batch_result, awaited)
        members.append((future, delivery))

    def appended_many(
        self,
        future: SendFuture[Any],
        topic: str,
        delivery: BulkDelivery,
        broken_off: KafkaError | None = None,
    ) -> None:
        """The records of a ``send_many`` are in batches. ``broken_off``: why these are only a part
        of its records."""
        self.unsettled += delivery.records - 1
        waiting = self._loop.create_task(self._wait_many(future, topic, delivery, broken_off))
        self._bulk.add(waiting)
        waiting.add_done_callback(self._bulk.discard)

    def refuse(self, future: SendFuture[Any], topic: str, error: Exception) -> None:
        """The record was not appended. Like a delivery, its error is reported if unread."""
        self._settle([(future, self._refused(topic, error))], 1)

    async def flush(self, producer: Producer) -> None:
        """Flush the producer, and wait until each future of a record appended before has its
        outcome."""
        bulk, batches = set(self._bulk), list(self._batches)
        await producer.flush()
        if bulk:
            await asyncio.wait(bulk)
        await self._settle_batches(batches)

    async def wait_settled(self) -> None:
        """After the producer's stop: wait until each future has its outcome."""
        while self._bulk:
            await asyncio.wait(self._bulk)
        await self._settle_batches(self._batches)

    async def _settle_batches(self, batches: Iterable[BatchResult]) -> None:
        await asyncio.sleep(0)  # most batches have their callback in this iteration of the loop
        for batch_result in list(batches):
            self._on_batch_done(batch_result)

    def _on_batch_done(self, batch_result: BatchResult) -> None:
        members = self._batches.pop(batch_result, [])
        if not batch_result.done:  # the batch was split, or the record was held
            for future, delivery in members:
                if not delivery.done():
                    self.appended(future, delivery)
            members = [member for member in members if member[1].done()]
        self._settle(members, len(members))

    async def _wait_many(
        self,
        future: SendFuture[Any],
        topic: str,
        delivery: BulkDelivery,
        broken_off: KafkaError | None,
    ) -> None:
        await delivery.wait()
        if broken_off is None:
            self._settle([(future, delivery)], delivery.records)
            return
        failures, delivered = delivery.peek()
        broken_off.maybe_written = delivered.records > 0 or any(
            failure.error.maybe_written for failure in failures
        )
        self._settle([(future, self._refused(topic, broken_off))], delivery.records)

    def _refused(self, topic: str, error: Exception) -> Delivery:
        """A delivery that has failed with the error."""
        refused = BatchResult(topic, self._report_unobserved)
        refused.count = 1
        delivery = delivery_for_last(refused, 0)
        if not isinstance(error, KafkaError):
            error = KafkaError(repr(error))
        # The traceback has the frames that hold the future: the garbage collector does not visit a
        # compiled delivery, so this cycle would keep them, and all records of the call, for ever.
        refused.fail(error.with_traceback(None))
        return delivery

    def _settle(self, futures: Sequence[tuple[SendFuture[Any], Outcome]], records: int) -> None:
        self.unsettled -= records
        finish(self._state, futures)


_PATIENCE_S = 0.1  # how long an entry that waits for buffer space holds up all threads

_RELEASE_EVERY = 256  # entries: how often callers that wait for room, and other tasks, can go on


class Feeder:
    """Appends entries in order. From then on :class:`~kafkaclient.sync.feeder.Outcomes` has them.

    An entry that waits for buffer space, or a ``send_many`` that is being appended, holds up only
    the later entries of its thread, which queue behind it. The thread hands over no more until they
    are appended. So a thread whose records wait for a broker stops no other thread.

    An entry that waits for its topic's metadata holds up only the later entries of the topic, which
    queue behind it. They leave the handover, and wait in up to ``buffer.memory`` bytes; beyond
    that, they hold up all entries.

    ``refused_at_stop``: how many entries the producer's stop has kept from being appended.
    """

    def __init__(self, producer: Producer, handover: Handover[Entry], outcomes: Outcomes) -> None:
        self._producer = producer
        self._handover = handover
        self._outcomes = outcomes
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._left: list[Entry] = []
        """Entries taken and not appended yet, in reverse order."""
        self._queues: dict[str | int, deque[Entry]] = {}
        """Entries that cannot be appended at once: by topic, if they wait for its metadata, else by
        thread."""
        self._queued_bytes = 0  # in queues of topics
        self._appending: set[asyncio.Task[None]] = set()
        """One task for each queue."""
        self.refused_at_stop = 0

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
                self._outcomes.taken(records_in(entries))
                await self._append_all(entries)
                await asyncio.sleep(0)  # the sender's turn
            elif closed:
                break
            else:
                await self._woken.wait()
        await self.wait_appended()

    async def wait_appended(self) -> None:
        """Wait until no entry waits for its turn to be appended."""
        while self._appending:
            await asyncio.wait(self._appending)

    async def _append_all(self, entries: list[Entry]) -> None:
        entries.reverse()
        self._left = entries
        taken = 0
        try:
            while entries:
                entry = entries[-1]
                if not (self._queues and self._queue_before(entry)) and self._append_now(entry):
                    entries.pop()
                else:
                    self._handover.release(taken)
                    taken = 0
                    await self._append_later(entries)
                    self._handover.holder = ""
                taken += entry[-1]
                if len(entries) % _RELEASE_EVERY == 0:
                    self._handover.release(taken)
                    taken = 0
        finally:
            self._handover.release(taken)

    def _queue_before(self, entry: Entry) -> str | int | None:
        """The queue that the entry has to join."""
        thread, topic = entry[-2], topic_of(entry[1])
        return thread if thread in self._queues else topic if topic in self._queues else None

    async def _append_later(self, entries: list[Entry]) -> None:
        """Put the last entry into the queue of its thread or topic."""
        entry = entries[-1]
        work, thread, size = entry[1], entry[-2], entry[-1]
        if work is None:
            self._mark(entries.pop())
            return
        key, topic = self._queue_before(entry), topic_of(work)
        if key is None:
            key = topic if self._waits_for_metadata(topic, work) else thread
        limit = self._producer.config.buffer_memory
        while key != thread and self._queued_bytes and self._queued_bytes + size > limit:
            await asyncio.wait(self._appending, return_when=asyncio.FIRST_COMPLETED)
        if key != thread:
            self._queued_bytes += size
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(entries.pop())
            return
        is_first = all(isinstance(other, str) for other in self._queues)
        self._queues[key] = deque([entries.pop()])
        task = self._loop.create_task(self._append_queue(key, self._queues[key]))
        self._appending.add(task)
        task.add_done_callback(self._appending.discard)
        if key == thread:
            # With a full buffer and brokers that are well, one queue is less work than several.
            if is_first:
                await asyncio.wait({task}, timeout=_PATIENCE_S)
            if not task.done():
                self._handover.stop(thread)

    def _waits_for_metadata(self, topic: str, work: One | Many) -> bool:
        """Whether the metadata does not have the topic, or the partition that the entry names."""
        partition = work.partition if isinstance(work, Many) else work[3]
        known = self._producer.known_partitions(topic)
        return known is None or (isinstance(partition, int) and partition >= len(known))

    async def _append_queue(self, key: str | int, queue: deque[Entry]) -> None:
        """Append the entries of a queue. The first one cannot be appended at once."""
        appended, try_now = 0, False
        while queue:
            entry = queue.popleft()
            if isinstance(key, str):
                self._queued_bytes -= entry[-1]
            else:
                while topic_of(entry[1]) in self._queues:
                    await asyncio.wait(self._appending, return_when=asyncio.FIRST_COMPLETED)
            if not (try_now and self._append_now(entry)):
                await self._append(entry)
                try_now = isinstance(key, int) or self._producer.known_partitions(key) is not None
            appended += 1
            if appended % _RELEASE_EVERY == 0:
                await asyncio.sleep(0)
        del self._queues[key]
        if isinstance(key, int):
            self._handover.resume(key)

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

    def fail_left(self, error: Exception) -> int:
        """Fail the entries whose append has not begun; returns how many there were."""
        new = self._handover.take()
        self._outcomes.taken(records_in(new))
        left = [*self._left[::-1], *new]
        self._left = []
        for queue in self._queues.values():
            left += queue
            queue.clear()
        for future, work, *_ in left:
            if isinstance(future, SendFuture):
                self._outcomes.refuse(future, topic_of(work), error)
            else:
                future.set_exception(error)
        return records_in(left)

    def _append_now(self, entry: Entry) -> bool:
        """Append a record without waiting; False: it has to wait, or is no single record."""
        future, work, context, awaited, *_ = entry
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
        except BufferFullError as error:
            self._handover.holder = error.holder
            return False
        except PartitionOutOfRangeError:
            return False
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._outcomes.refuse(future, topic, error)
        else:
            self._outcomes.appended(future, delivery, awaited=awaited)
        return True

    async def _append(self, entry: Entry) -> None:
        """Append an entry, or wait until it can be appended."""
        future, work, context, awaited, deadline, *_ = entry
        if work is None:
            future.set_result(None)
            return
        core = self._producer._core
        assert core is not None  # the producer was started
        context.run(CALL_DEADLINE.set, deadline - monotonic() + core.now())
        call = self._call(work)
        topic = topic_of(work)
        task: asyncio.Task[Any] = self._loop.create_task(call, context=context)
        await asyncio.wait({task})
        try:
            done = task.result()
        except asyncio.CancelledError:  # by code of the application
            self._outcomes.refuse(
                future, topic, KafkaError(f"the append to {topic!r} was cancelled")
            )
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self.refused_at_stop += isinstance(error, ProducerClosedError)
            part = error.delivery if isinstance(error, KafkaError) else None
            if isinstance(error, KafkaError) and part is not None and part.records:
                self._outcomes.appended_many(future, topic, part, error)
            else:
                self._outcomes.refuse(future, topic, error)
        else:
            if isinstance(work, Many):
                self._outcomes.appended_many(future, topic, done)
            else:
                self._outcomes.appended(future, done, awaited=awaited)

    def _call(self, work: One | Many) -> Any:
        """The producer's coroutine that appends the records."""
        if isinstance(work, Many):
            return work.call(self._producer)
        topic, value, key, partition, timestamp_ms, headers = work
        return self._producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
