"""All batches without an outcome, their outcomes and their expiry (Java: ``IncompleteBatches``)."""

from __future__ import annotations

import asyncio
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.delivery_errors import (
    fail_records,
    redirect_deliveries,
    split_in_half,
    with_verdict,
    without_records,
)
from kafkaclient.producer.batches.idempotence import advance
from kafkaclient.producer.settings import SOON
from kafkaclient.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.accumulator.buffer_pool import BatchFactory, BufferPool
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.idempotence import ProducerIdentity
    from kafkaclient.producer.batches.topic_buffer import BatchObserver
    from kafkaclient.producer.settings import AccumulatorSettings


class IncompleteBatches:
    """Every batch from its creation to its outcome; ``identity`` is told of each that fails."""

    def __init__(
        self,
        settings: AccumulatorSettings,
        buffer_pool: BufferPool,
        ready_queues: ReadyQueues,
        batch_factory: BatchFactory,
        flushes: dict[asyncio.Future[None], int],
        identity: ProducerIdentity,
        *,
        observer: BatchObserver | None = None,
    ) -> None:
        self._batches: dict[ProducerBatch, None] = {}  # oldest first
        self._settings = settings
        self._buffer_pool = buffer_pool
        self._ready_queues = ready_queues
        self._batch_factory = batch_factory
        self._observer = observer
        self._identity = identity
        self._newest = -inf
        """The latest ``created`` of all batches so far."""
        self._order = count()  # the parts of a split have the same age
        self._early: list[tuple[float, int, ProducerBatch]] = []
        """A heap of batches that were opened later than others but expire earlier, because their
        records had waited for metadata. A batch with an outcome is dropped when it comes up."""
        self.flushes = flushes
        """Pending flush() calls: future -> serial number of the last batch it waits for."""
        self._failed_in_flight: set[ProducerBatch] = set()
        """Batches that have failed while they were on the wire, and still are."""
        self._landings: list[asyncio.Future[None]] = []
        """The waits for them."""

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[ProducerBatch]:
        return iter(self._batches)

    @property
    def only(self) -> ProducerBatch | None:
        """The batch, if there is exactly one."""
        return next(iter(self._batches)) if len(self._batches) == 1 else None

    def add(self, batch: ProducerBatch) -> None:
        self._batches[batch] = None
        created = batch.created
        if created < self._newest:
            heappush(self._early, (created, next(self._order), batch))
        else:
            self._newest = created

    def reschedule(self, now: float) -> None:
        """Schedule every queue that has batches: a flush began, or the producer id arrived."""
        for queue in dict.fromkeys(batch.queue for batch in self._batches):
            self._ready_queues.schedule(queue, now)

    async def flush(self, now: float) -> None:
        """Send all batches without lingering, and wait until each has an outcome."""
        if not self._batches:
            return
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flushes[flushed] = next(reversed(self._batches)).serial
        self.reschedule(now)
        try:
            await flushed
        finally:
            self.flushes.pop(flushed, None)

    @property
    def has_failed_in_flight(self) -> bool:
        """Whether a failed batch is on the wire: its response has not come, and its connection has
        not ended (it ends after request.timeout.ms at the latest)."""
        return bool(self._failed_in_flight)

    async def wait_landed(self) -> None:
        """Wait until one of the failed batches on the wire is there no more."""
        if not self._failed_in_flight:
            return
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._landings.append(landed)
        try:
            await landed
        finally:
            if landed in self._landings:
                self._landings.remove(landed)

    # --- outcomes -----------------------------------------------------------------------------

    def complete(
        self,
        batch: ProducerBatch,
        base_offset: int,
        log_append_time: int,
        now: float,
        log_start_offset: int = NO_OFFSET,
    ) -> None:
        """The batch is in the log."""
        batch.queue.complete(batch)
        if not batch.result.done:
            batch.result.resolve(base_offset, log_append_time, log_start_offset)
        self._finish(batch, now)

    def fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        now: float,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> None:
        """A batch in flight has failed. If it is surely in no log, the partition starts over. If it
        may be in a log, later responses show that.

        ``record_errors``: by index, the errors of rejected records."""
        batch.queue.fail(batch, maybe_written=batch.maybe_written)
        self._fail_records(batch, error, record_errors)
        self._finish(batch, now)

    def retry(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        retry_at: float,
        now: float,
        counts: bool = True,
    ) -> None:
        """Queue the batch on the wire again, in its order; ``counts``: towards its retries."""
        queue = batch.queue
        if batch.result.done:  # it failed while it was on the wire
            queue.fail(batch, maybe_written=True)
            self._finish(batch, now)
            return
        batch.schedule_retry(error, retry_at, counts=counts)
        queue.requeue(batch)
        self._ready_queues.schedule(queue, now)

    def resequence(self, batch: ProducerBatch, error: KafkaError, at: float, now: float) -> None:
        """The broker expects another sequence. If the batch is the oldest, the partition starts
        over with a raised epoch; else an older batch is missing, and is sent first (KIP-360)."""
        if batch.queue.is_oldest(batch) and not batch.result.done:
            batch.mark_unwritten()  # or the broker would have known it as a duplicate
            batch.queue.sequence.require_restart()
        self.retry(batch, error, at, now)

    def split(self, batch: ProducerBatch, now: float) -> None:
        """Replace a batch that is too large for its topic by its two halves (KIP-126)."""
        size = max(self._settings.batch_size, batch.size // 2)
        batch.queue.topic.batch_limit.lower(size, now)
        parts = split_in_half(batch, self._batch_factory.in_place_of(batch))
        sequence = batch.base_sequence
        for part in parts:
            if batch.stamped:  # the parts have the numbers that their records had
                part.stamp(batch.producer_id, batch.producer_epoch, sequence)
                sequence = advance(sequence, part.count)
        self._replace(batch, parts, now, partial(redirect_deliveries, batch, parts))

    def retry_without_rejected(
        self,
        batch: ProducerBatch,
        errors: Mapping[int, KafkaError],
        error: KafkaError,
        now: float,
    ) -> None:
        """The broker rejected the batch for the records with these indices (KIP-467), and wrote
        none: fail these records, and replace the batch by one with the others."""
        rest = without_records(batch, errors, self._batch_factory.in_place_of(batch))
        if batch.stamped:
            # The numbers of all later batches are too high now.
            rest.stamp(batch.producer_id, batch.producer_epoch, batch.base_sequence)
            batch.queue.sequence.require_restart()
        self._replace(batch, [rest], now, partial(fail_records, batch, errors, error, rest))

    def _replace(
        self,
        batch: ProducerBatch,
        parts: list[ProducerBatch],
        now: float,
        redirect: Callable[[], None],
    ) -> None:
        # From here on nothing fails: until the parts are complete, the batch has the records.
        self._buffer_pool.force(sum(part.charged for part in parts))
        redirect()
        batch.queue.replace(batch, parts)
        # The parts take the batch's place here too: deadlines stay in order.
        order = [b for old in self._batches for b in (parts if old is batch else (old,))]
        self._batches = dict.fromkeys(order)
        for part in parts:
            self.add(part)
        self._buffer_pool.give_back(batch.set_charge(0))
        self._ready_queues.schedule(batch.queue, now)

    # --- time ---------------------------------------------------------------------------------

    def next_expired(self, now: float) -> ProducerBatch | None:
        """The oldest batch, if it is older than the delivery timeout, wherever it is."""
        batch = self._oldest()
        expired = batch is not None and batch.created + self._settings.delivery_timeout <= now
        return batch if expired else None

    def next_expiry(self) -> float | None:
        """When the next batch expires. None: there are no batches."""
        batch = self._oldest() if self._batches else None
        return None if batch is None else batch.created + self._settings.delivery_timeout

    def _oldest(self) -> ProducerBatch | None:
        """The batch that expires next."""
        while self._early and self._early[0][2] not in self._batches:
            heappop(self._early)
        first = next(iter(self._batches), None)
        if first is not None and self._early and self._early[0][0] < first.created:
            return self._early[0][2]
        return first

    def close_old(self, now: float, age: float) -> float:
        """Close the batches whose first record is ``age`` seconds old: later records would expire
        with the first. Returns when to call this again."""
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

    def fail_without_answer(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """Fail a batch without knowing whether it was written. On the wire it keeps its memory and
        its place in the sequence until its response comes or its connection ends."""
        if batch.in_flight:
            self._fail_records(batch, error)
            self._failed_in_flight.add(batch)
            self._settle(batch, now)
        else:
            self.fail_and_free(batch, error, now)

    def fail_and_free(self, batch: ProducerBatch, error: KafkaError, now: float) -> None:
        """Fail a batch, wherever it is, and free its memory at once."""
        if batch.in_flight:
            batch.mark_uncertain()
        batch.queue.fail(batch, maybe_written=True)
        self._fail_records(batch, error)
        self._finish(batch, now)

    def _fail_records(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> None:
        if batch.result.done:
            return
        error = with_verdict(error, batch)
        if record_errors is not None:
            record_errors = {n: with_verdict(each, batch) for n, each in record_errors.items()}
        batch.result.fail(error, record_errors)
        self._identity.batch_failed(error)

    def _finish(self, batch: ProducerBatch, now: float) -> None:
        if self._failed_in_flight:
            self._failed_in_flight.discard(batch)
            for landed in self._landings:
                if not landed.done():
                    landed.set_result(None)
        self._settle(batch, now)
        self._ready_queues.schedule(batch.queue, now)
        self._buffer_pool.give_back(batch.set_charge(0))

    def _settle(self, batch: ProducerBatch, now: float) -> None:
        """The deliveries of the batch have their outcome."""
        if not batch.closed:  # it has failed before it was sealed
            batch.close()
        if self._observer is not None and batch in self._batches:  # else it failed before
            self._observer.on_outcome(batch, now)
        self._batches.pop(batch, None)
        if self._early and not self._batches:
            self._early.clear()
        if self.flushes:
            self._end_flushes()

    def _end_flushes(self) -> None:
        oldest = next(iter(self._batches)).serial if self._batches else None
        while self.flushes:
            # Later flushes wait for all that an earlier one waits for.
            flushed, youngest = next(iter(self.flushes.items()))
            if oldest is not None and oldest <= youngest:
                break
            del self.flushes[flushed]
            if not flushed.done():
                flushed.set_result(None)
