"""The deliveries of many records in one awaitable."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Never

from kafkaclient.errors import BulkDeliveryError, BulkFailure
from kafkaclient.producer.batches.waiters import Callback
from kafkaclient.types import NO_OFFSET, BulkMetadata, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.batches.batch_result import BatchResult, Run

_KEPT = 64  # runs that are kept before those with an outcome are summed up


class BulkDelivery:
    """The outcome of many records: await it for their :class:`~kafkaclient.BulkMetadata`, any
    number of times.

    The delivery is done when each record has an outcome. If any record failed, awaiting raises one
    :class:`~kafkaclient.errors.BulkDeliveryError` for all. Cancelling a task that awaits the
    delivery takes no record back. If records fail and the outcome is never read (no await,
    :meth:`exception` or :meth:`result`), the failure is counted, logged and given to the producer's
    ``on_error``.
    """

    __slots__ = (
        "__weakref__",
        "_error",
        "_failed",
        "_keep",
        "_pending",
        "_records",
        "_topic",
        "_unseen",
        "_written",
    )

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._records = 0
        self._pending: list[Run] = []
        self._keep = _KEPT
        self._written: dict[int, list[OffsetRange]] = {}
        self._failed: dict[Any, tuple[BatchResult, BulkFailure]] = {}
        self._error: BulkDeliveryError | None = None
        self._unseen = True

    @property
    def records(self) -> int:
        """How many records were handed over."""
        return self._records

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError(
            "a BulkDelivery cannot be copied or pickled: it belongs to records on their way"
        )

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        failed = sum(failure.records for _, failure in self._failed.values())
        return f"<BulkDelivery {self._topic} records={self._records} failed={failed} {state}>"

    def __del__(self) -> None:
        self._sum_up()
        for part, first, count in self._pending:
            part.drop(first, count)
        if self._unseen:
            for batch_result, failure in self._failed.values():
                if batch_result.on_unseen is not None and batch_result.on_delivery is None:
                    batch_result.on_unseen(batch_result, failure.error, failure.records)

    def add(self, runs: Iterable[Run]) -> None:
        """Include further records; their batches count them as having a delivery. Not for
        applications."""
        pending = self._pending
        for batch_result, first, count in runs:
            self._records += count
            if pending and pending[-1][0] is batch_result and sum(pending[-1][1:]) == first:
                pending[-1] = (batch_result, pending[-1][1], pending[-1][2] + count)
            else:
                pending.append((batch_result, first, count))
        if len(pending) > self._keep:
            self._sum_up()

    def done(self) -> bool:
        """Whether every record is acknowledged or has failed."""
        return self.latest_run() is None

    def exception(self) -> BulkDeliveryError | None:
        """The error that says which records failed; None when all were delivered.

        Raises:
            asyncio.InvalidStateError: it is not done yet.
        """
        self._unseen = False
        if not self.done():
            raise asyncio.InvalidStateError("records are still on their way")
        if self._failed and self._error is None:
            self._error = self._make_error()
        return self._error

    def result(self) -> BulkMetadata:
        """Where the records were written.

        Raises:
            BulkDeliveryError: some failed.
            asyncio.InvalidStateError: it is not done yet.
        """
        error = self.exception()
        if error is not None:
            raise error.with_traceback(None)  # it would gather every caller's frames
        return self._metadata()

    def __await__(self) -> Generator[Any, None, BulkMetadata]:
        self._unseen = False
        yield from self.wait().__await__()
        return self.result()

    async def wait(self) -> None:
        """Wait until the delivery is done. The outcome does not count as read."""
        # The latest run first: the earlier ones are likely to be done by then.
        while (run := self.latest_run()) is not None:
            await _until_done(*run)

    def latest_run(self) -> Run | None:
        """The last run without an outcome; not for applications."""
        if self._pending:
            batch_result, first, count = self._pending[-1]
            if batch_result.resolve_index(first + count - 1)[0].done:
                self._sum_up()
        return self._pending[-1] if self._pending else None

    def peek(self) -> tuple[tuple[BulkFailure, ...], BulkMetadata]:
        """The failures, and where the other records were written. Unlike :meth:`exception` and
        :meth:`result` the call does not count as reading the outcome."""
        return tuple(failure for _, failure in self._failed.values()), self._metadata()

    def _sum_up(self) -> None:
        """Release batches that are done: a call may have many more batches than are in flight."""
        left: list[Run] = []
        for run in self._pending:
            for part, first, count in parts_of(*run):
                if part.done:
                    self._add_outcome(part, first, count)
                else:
                    left.append((part, first, count))
        self._pending = left
        self._keep = max(_KEPT, 2 * len(left))

    def _add_outcome(self, batch_result: BatchResult, first: int, count: int) -> None:
        batch_result.live_deliveries -= count
        if batch_result.error is not None:
            self._add_failure(batch_result, first, count)
        else:
            base = batch_result.base_offset
            written = OffsetRange(NO_OFFSET if base == NO_OFFSET else base + first, count)
            _add_range(self._written.setdefault(batch_result.partition, []), written)

    def _add_failure(self, batch_result: BatchResult, first: int, count: int) -> None:
        error: KafkaError | None = None
        for index in sorted(batch_result.record_errors or ()):
            if first <= index < first + count:
                error = batch_result.error_of(index)  # more precise than the batch's error
                break
        error = error or batch_result.error
        assert error is not None
        kind = (batch_result.partition, type(error), error.code)
        known = self._failed.get(kind)
        if known is not None:
            batch_result, (_, records, error) = known
            count += records
        self._failed[kind] = (batch_result, BulkFailure(batch_result.partition, count, error))

    def _metadata(self) -> BulkMetadata:
        partitions = {p: _merged(ranges) for p, ranges in sorted(self._written.items())}
        records = sum(written.records for ranges in partitions.values() for written in ranges)
        return BulkMetadata(self._topic, records, partitions)

    def _make_error(self) -> BulkDeliveryError:
        failures, delivered = self.peek()
        by_partition: Counter[int] = Counter()
        for failure in failures:
            by_partition[failure.partition] += failure.records
        where = ", ".join(
            f"{'none yet' if partition < 0 else partition} ({records})"
            for partition, records in sorted(by_partition.items())
        )
        error = BulkDeliveryError(
            f"{by_partition.total()} of {self._records} records for topic {self._topic!r} "
            f"failed; by partition: {where}. The first failure: {failures[0].error}"
        )
        error.records, error.failures = self._records, failures
        error.delivered = delivered
        error.retriable = all(failure.error.retriable for failure in failures)
        error.__cause__ = failures[0].error
        return error


def parts_of(batch_result: BatchResult, first: int, count: int) -> Iterator[Run]:
    """Yields the run of records by batch, as they are after all splits."""
    while count > 0:
        part, at, run = batch_result.run_at(first)
        number = min(count, run)
        yield part, at, number
        first += number
        count -= number


def _adjoin(before: OffsetRange, after: OffsetRange) -> bool:
    if before.first == NO_OFFSET:
        return after.first == NO_OFFSET
    return before.first + before.records == after.first


def _add_range(ranges: list[OffsetRange], written: OffsetRange) -> None:
    """Append the range, or extend the last range if the two adjoin."""
    if ranges and _adjoin(ranges[-1], written):
        ranges[-1] = OffsetRange(ranges[-1].first, ranges[-1].records + written.records)
    else:
        ranges.append(written)


def _merged(ranges: list[OffsetRange]) -> tuple[OffsetRange, ...]:
    merged: list[OffsetRange] = []
    for written in sorted(ranges):
        _add_range(merged, written)
    return tuple(merged)


async def _until_done(batch_result: BatchResult, first: int, count: int) -> None:
    """Wait for the last of the records of a batch."""
    loop = batch_result.home_loop()
    woken = loop.create_future()
    waiter = Callback(loop, _wake, woken, 0)
    batch_result.await_record(first + count - 1, waiter)
    try:
        await woken
    finally:
        batch_result.resolve_index(first + count - 1)[0].forget(waiter)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
