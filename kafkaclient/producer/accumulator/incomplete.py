"""All batches without an outcome, and what becomes of them (Java: ``IncompleteBatches``)."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.sequence import advance
from kafkaclient.producer.batches.split import (
    fail_records,
    redirect_deliveries,
    split_in_half,
    without_records,
)
from kafkaclient.producer.timing import SOON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.accumulator.buffer_pool import BufferPool
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.observer import BatchObserver
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.split import Make

__all__ = ["IncompleteBatches", "largest_backlog"]

# How many batches are looked at to tell what the buffer is full of.
_OLDEST = 8


class IncompleteBatches:
    """From creation to outcome. ``delivery_timeout`` is in seconds; ``on_failed(error)`` is called
    for every batch that fails."""

    def __init__(
        self,
        buffer_pool: BufferPool,
        lines: ReadyQueues,
        *,
        delivery_timeout: float,
        on_failed: Callable[[KafkaError], None],
        observer: BatchObserver | None = None,
    ) -> None:
        self._batches: dict[ProducerBatch, None] = {}  # oldest first
        self._buffer_pool = buffer_pool
        self._ready_queues = lines
        self._delivery_timeout = delivery_timeout
        self._newest = -inf
        """The latest ``created`` of all batches so far."""
        self._order = count()  # parts of a batch have its age
        self._early: list[tuple[float, int, ProducerBatch]] = []
        """A heap of the batches that were created, as their delivery timeout has it, before older
        ones: their first records had been kept until the metadata came. A batch with an outcome
        is dropped when it comes up."""
        self._observer = observer
        self._on_failed = on_failed
        self.on_first_batch: Callable[[], None] = lambda: None
        """Called when there are batches again."""
        self.flushes: dict[asyncio.Future[None], int] = {}
        """Who waits for everything up to which batch to have its outcome."""
        self._adrift: set[ProducerBatch] = set()
        """Batches that were given up while they were on the wire, and still are."""
        self._landed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[ProducerBatch]:
        return iter(self._batches)

    def add(self, batch: ProducerBatch) -> None:
        if not self._batches:
            self.on_first_batch()
        self._batches[batch] = None
        self._note_age(batch)

    def _note_age(self, batch: ProducerBatch) -> None:
        if batch.created < self._newest:
            heappush(self._early, (batch.created, next(self._order), batch))
        self._newest = max(self._newest, batch.created)

    def reschedule(self, now: float) -> None:
        """Look at every queue with batches again: a flush began, or the producer id arrived."""
        for queue in dict.fromkeys(batch.queue for batch in self._batches):
            self._ready_queues.schedule(queue, now)

    async def flush(self, now: float) -> None:
        """Send what is there without lingering; wait until all of it has an outcome."""
        if not self._batches:
            return
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flushes[flushed] = next(reversed(self._batches)).serial
        self.reschedule(now)
        try:
            await flushed
        finally:
            self.flushes.pop(flushed, None)

    async def wait_adrift_landed(self) -> None:
        """Wait until no batch that was given up is on the wire any more: its answer has come, or
        its connection has ended (after request.timeout.ms at the latest)."""
        while self._adrift:
            self._landed.clear()
            await self._landed.wait()

    # --- answers ------------------------------------------------------------------------------

    def complete(
        self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float
    ) -> None:
        """The batch is in the log."""
        queue, batch_result = _land(batch), batch.result
        queue.unacked.remove(batch)
        queue.sequence.acknowledged(batch)
        queue.records_sent += batch_result.count
        queue.bytes_sent += batch.size
        if not batch_result.done:
            batch_result.resolve(base_offset, log_append_time)
        self._finish(batch, now)

    def fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        now: float,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> None:
        """The batch was refused for good. If it cannot be in the log, its sequence numbers are
        missing there and the partition starts over; if it may, what follows it tells.
        ``record_errors`` names culprits by index."""
        queue = _land(batch)
        queue.unacked.remove(batch)
        queue.sequence.unresolved |= batch.stamped and batch.maybe_written
        queue.sequence.start_over |= batch.stamped and not batch.maybe_written
        self._tell(batch, error, record_errors)
        self._finish(batch, now)

    def retry(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        retry_at: float,
        now: float,
        *,
        counts: bool = True,
    ) -> None:
        """The batch goes back to the front of its queue, in its order; ``counts`` towards its
        retries."""
        queue = _land(batch)
        batch.last_error = error
        if batch.result.done:  # given up while it was on the wire
            queue.unacked.remove(batch)
            queue.sequence.unresolved |= batch.stamped
            self._finish(batch, now)
            return
        batch.retries += counts
        batch.retry_at = retry_at
        queue.put_back(batch)
        self._ready_queues.schedule(queue, now)

    def resequence(self, batch: ProducerBatch, error: KafkaError, at: float, now: float) -> None:
        """The broker expects another sequence. First in line, the partition starts over with a
        raised epoch; else a batch before this one is missing, and comes first (KIP-360)."""
        queue = batch.queue
        if queue.unacked[0] is batch and not batch.result.done:
            batch.maybe_written = False  # or the broker would have known it as a duplicate
            queue.sequence.start_over = True
        self.retry(batch, error, at, now)

    def split(self, batch: ProducerBatch, make: Make, now: float) -> None:
        """Put two halves in the place of a batch that is too large for its topic (KIP-126)."""
        parts = split_in_half(batch, make)
        sequence = batch.base_sequence
        for part in parts:
            if batch.stamped:  # the parts have the numbers that their records had
                part.stamp(batch.producer_id, batch.producer_epoch, sequence)
                sequence = advance(sequence, part.count)
        self._replace(batch, parts, now, partial(redirect_deliveries, batch, parts))

    def sort_out(
        self,
        batch: ProducerBatch,
        errors: Mapping[int, KafkaError],
        error: KafkaError,
        make: Make,
        now: float,
    ) -> None:
        """The broker refused a batch because of the records with these indices (KIP-467): they
        fail, and a batch of the others takes its place. Nothing of it was written."""
        rest = without_records(batch, errors, make)
        if batch.stamped:
            # The numbers of what followed it are too high by now.
            rest.stamp(batch.producer_id, batch.producer_epoch, batch.base_sequence)
            batch.queue.sequence.start_over = True
        self._replace(batch, [rest], now, partial(fail_records, batch, errors, error, rest))

    def _replace(
        self,
        batch: ProducerBatch,
        parts: list[ProducerBatch],
        now: float,
        lead_deliveries_on: Callable[[], None],
    ) -> None:
        # From here on nothing fails: until the parts are whole, the batch stands for its records.
        queue = _land(batch)
        self._buffer_pool.force(sum(part.charged for part in parts))
        lead_deliveries_on()
        at = queue.unacked.index(batch)
        queue.unacked.remove(batch)
        for part in reversed(parts):
            queue.unacked.insert(at, part)
        queue.put_back(parts[0])
        # They take the parent's place here too: deadlines stay in order.
        order = [b for old in self._batches for b in (parts if old is batch else (old,))]
        self._batches = dict.fromkeys(order)
        for part in parts:
            self._note_age(part)
        self._release(batch)
        self._ready_queues.schedule(queue, now)

    # --- time ---------------------------------------------------------------------------------

    def expire(self, now: float, error_of: Callable[[ProducerBatch], KafkaError]) -> None:
        """Give up what is older than the delivery timeout, wherever it is."""
        while (batch := self._oldest()) and batch.created + self._delivery_timeout <= now:
            self.abandon(batch, error_of(batch), now)

    def next_expiry(self) -> float | None:
        batch = self._oldest()
        return None if batch is None else batch.created + self._delivery_timeout

    def _oldest(self) -> ProducerBatch | None:
        """The batch that expires next."""
        while self._early and self._early[0][2] not in self._batches:
            heappop(self._early)
        first = next(iter(self._batches), None)
        if first is not None and self._early and self._early[0][0] < first.created:
            return self._early[0][2]
        return first

    def close_old(self, now: float, age: float) -> float:
        """Have batches take no more records ``age`` seconds after their first one: a record expires
        with its batch, whose time runs from then. Returns when to call this again."""
        for created, _, batch in self._early:
            if not batch.closed and created + age <= now + SOON:
                batch.close()
                self._ready_queues.schedule(batch.queue, now)
        for batch in self._batches:
            if batch.closed:
                continue
            if batch.created + age > now + SOON:
                return batch.created + age
            batch.close()
            self._ready_queues.schedule(batch.queue, now)
        return now + age

    def abandon(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """Give a batch up without knowing whether it was written. On the wire it keeps its memory
        and its place in the sequence until its answer comes or its connection ends."""
        queue = batch.queue
        self._tell(batch, error)
        if batch.in_flight:
            self._adrift.add(batch)
            self._settle(batch, now)
            return
        queue.batches.remove(batch)
        if batch in queue.unacked:
            queue.unacked.remove(batch)
            queue.sequence.unresolved |= batch.stamped
        self._finish(batch, now)

    def discard(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """Take a batch out of wherever it is: handling it has failed, by a defect of ours."""
        queue = batch.queue
        if batch.in_flight:
            _land(batch)
        for line in (queue.batches, queue.unacked):
            if batch in line:
                line.remove(batch)
        queue.sequence.unresolved |= batch.stamped
        self._tell(batch, error)
        self._finish(batch, now)

    def _tell(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> None:
        if batch.result.done:
            return
        batch.result.fail(error, record_errors)
        self._on_failed(error)

    def _finish(self, batch: ProducerBatch, now: float) -> None:
        self._adrift.discard(batch)
        self._landed.set()
        self._settle(batch, now)
        queue = batch.queue
        if queue.sequence.unresolved and not queue.unacked:
            queue.sequence.resolve()
        self._ready_queues.schedule(queue, now)
        self._release(batch)

    def _settle(self, batch: ProducerBatch, now: float) -> None:
        if not batch.closed:  # it has failed before it was sealed
            batch.close()
        if self._observer is not None and batch in self._batches:  # else it was given up before
            self._observer.on_outcome(batch, now)
        self._batches.pop(batch, None)
        if not self._batches:
            self._early.clear()
        if self.flushes:
            self._end_flushes()

    def _end_flushes(self) -> None:
        oldest = next(iter(self._batches)).serial if self._batches else None
        while self.flushes:
            # Whatever one flush waits for, those begun later wait for as well.
            flushed, youngest = next(iter(self.flushes.items()))
            if oldest is not None and oldest <= youngest:
                break
            del self.flushes[flushed]
            if not flushed.done():
                flushed.set_result(None)

    def _release(self, batch: ProducerBatch) -> None:
        charged, batch.charged = batch.charged, 0
        self._buffer_pool.give_back(charged)


def _land(batch: ProducerBatch) -> PartitionQueue:
    batch.in_flight = False
    batch.queue.in_flight -= 1
    return batch.queue


def largest_backlog(oldest_first: Iterable[ProducerBatch]) -> str:
    """What most bytes wait for, and how many, among the oldest batches.

    A refused record must not cost in proportion to what is queued: those few tell enough.
    """
    backlog: Counter[str] = Counter()
    for batch in islice(oldest_first, _OLDEST):
        backlog[batch.queue.waits_for] += batch.size
    if not backlog:
        return "all of it waits for the metadata of its topics"
    awaited, nbytes = backlog.most_common(1)[0]
    return f"of the oldest batches, most wait for {awaited} ({nbytes} bytes)"
