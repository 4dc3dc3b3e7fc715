# cython: nonecheck=True
"""The outcome of one batch, which the deliveries of all its records share.

``batch_result.pxd`` has the C types.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeAlias

import cython

from kafkaclient.log_fields import log_fields
from kafkaclient.types import NO_OFFSET, NO_TIMESTAMP

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kafkaclient.errors import KafkaError

__all__ = ["BatchResult", "Run"]

Run: TypeAlias = "tuple[BatchResult, int, int]"
"""Records that follow each other in a batch: the batch's result, the index of the first, their
count."""

# Compiled, __name__ is another.
_log = logging.getLogger("kafkaclient.producer.batches.batch_result")

if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)
    from kafkaclient.producer.batches.waiters import Callback, Waiter, home_loop, wake_soon


class BatchResult:
    """The outcome of one batch. The deliveries of all its records point here.

    Pending until :meth:`resolve`, :meth:`fail` or :meth:`split_into` is called, once.
    ``on_unseen(batch_result, error, count)`` reports failed records without a live delivery.
    """

    __slots__ = (
        "_dropped",
        "_dropped_from",
        "_dropped_to",
        "_parts",
        "_waiters",
        "atomic",
        "base_offset",
        "count",
        "done",
        "error",
        "hooked",
        "live_deliveries",
        "log_append_time",
        "log_start_offset",
        "loop",
        "on_delivery",
        "on_only_record_awaited",
        "on_unseen",
        "partition",
        "record_errors",
        "topic",
    )

    def __init__(
        self, topic: str, on_unseen: Callable[[BatchResult, KafkaError, int], None] | None = None
    ) -> None:
        self.topic = topic
        self.partition = -1
        self.base_offset = NO_OFFSET
        self.log_append_time = NO_TIMESTAMP
        self.log_start_offset = NO_OFFSET
        self.count = 0
        self.done = False
        self.error: KafkaError | None = None
        self.record_errors: dict[int, KafkaError] | None = None
        self.on_unseen = on_unseen
        self.loop: asyncio.AbstractEventLoop | None = None
        """The producer's event loop, the only one that wakes waiters; None: not known."""
        self.atomic = False
        """Whether one delivery stands for all records, which have one outcome (``send_batch``)."""
        self.live_deliveries = 0
        """Deliveries of this batch that are still referenced."""
        self.on_delivery: Callable[[Any], object] | None = None
        """The producer's ``on_delivery``; called for each record, in order."""
        self.hooked: list[Any] = []
        """The deliveries that ``on_delivery`` will be called with; empty without it."""
        self.on_only_record_awaited: Callable[[], None] | None = None
        """Ends the batch's linger. Called when a task awaits the batch's only record so far."""
        self._waiters: dict[Waiter, int] | None = None  # to the record's index
        # Tuples: the garbage collector may empty a list before it frees a delivery that needs it.
        self._parts: tuple[tuple[int, ...], tuple[BatchResult, ...], tuple[int, ...]] | None = None
        # Records without a live delivery: the latest run of them, and the runs before it.
        self._dropped_from = self._dropped_to = 0
        self._dropped: list[tuple[int, int]] | None = None

    def drop(self, index: int, count: int = 1) -> None:
        """The records from ``index`` on have no live delivery any more."""
        self.live_deliveries -= count
        if self.done:
            pass  # nothing depends on the runs any more
        elif index == self._dropped_to:  # most often the one after, or before, the latest run
            self._dropped_to += count
        elif index + count == self._dropped_from:
            self._dropped_from = index
        else:
            if self._dropped is None:
                self._dropped = []
            self._dropped.append((self._dropped_from, self._dropped_to))
            self._dropped_from, self._dropped_to = index, index + count

    def resolve(
        self,
        base_offset: int,
        log_append_time: int = NO_TIMESTAMP,
        log_start_offset: int = NO_OFFSET,
    ) -> None:
        """The batch is written: its first record has ``base_offset`` (-1: not known)."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self._finish()

    def fail(self, error: KafkaError, record_errors: dict[int, KafkaError] | None = None) -> None:
        """The batch failed; ``record_errors`` names culprits by their index (KIP-467)."""
        self.error = error
        self.record_errors = record_errors
        self._finish()
        unseen = self.count - self.live_deliveries
        if self.atomic and self.live_deliveries:
            unseen = 0  # the one delivery stands for all records
        if unseen > 0 and self.on_unseen is not None:
            self.on_unseen(self, error, unseen)

    def split_into(
        self, firsts: list[int], parts: list[BatchResult], places: list[int] | None = None
    ) -> None:
        """The batch was split: the records from ``firsts[i]`` on went to ``parts[i]``, where they
        begin at ``places[i]`` (by default at 0).

        The deliveries keep pointing here and are led on, so waiters move with their records.
        """
        shifts = firsts if places is None else [f - p for f, p in zip(firsts, places, strict=True)]
        self._parts = (tuple(firsts), tuple(parts), tuple(shifts))
        self.on_only_record_awaited = None  # it refers to the batch, which is gone
        for waiter, index in self.take_waiters():
            part, at = self.resolve_index(index)
            part.when_done(at, waiter)
        hooked, self.hooked = self.hooked, []
        for delivery in hooked:
            part = delivery.batch_result  # also if it points at a batch that was split before
            part.on_delivery = self.on_delivery
            part.hooked.append(delivery)
        for part in dict.fromkeys(parts):
            part.live_deliveries = part.count
        for first, end in ((self._dropped_from, self._dropped_to), *(self._dropped or ())):
            index = first
            while index < end:
                part, at, run = self.run_at(index)
                part.drop(at, min(run, end - index))
                index += run

    def resolve_index(self, index: int) -> tuple[BatchResult, int]:
        """The result of the batch that holds the record ``index`` after splits, and its index."""
        if self._parts is None:
            return self, index
        return self.run_at(index)[:2]

    def run_at(self, index: int) -> tuple[BatchResult, int, int]:
        """:meth:`resolve_index`, and how many records from there on have stayed together."""
        batch_result, run = self, self.count - index
        while batch_result._parts is not None:
            firsts, parts, shifts = batch_result._parts
            at = bisect_right(firsts, index) - 1
            if at + 1 < len(firsts):
                run = min(run, firsts[at + 1] - index)
            batch_result, index = parts[at], index - shifts[at]
        return batch_result, index, run

    @property
    def waiting(self) -> int:
        """How many tasks and callbacks wait here."""
        return len(self._waiters or ())

    def when_settled(
        self, index: int, callback: Callable[[Any], object], target: object, awaited: bool = False
    ) -> None:
        """See ``Delivery.when_settled``; ``index`` is the record's."""
        batch_result, index = self.resolve_index(index)
        loop = batch_result.home_loop()
        context = Context()  # not a shared one: two threads cannot be in one context
        waiter = Callback(loop, callback, target, 0, context)
        if batch_result.done:
            loop.call_soon(callback, target, context=context)
        elif awaited:
            batch_result.await_record(index, waiter)
        else:
            batch_result.when_done(index, waiter)

    def when_done(self, index: int, waiter: Waiter) -> None:
        """Wake the waiter once this batch, or the part that ``index`` moves to, is done."""
        if self._waiters is None:
            self._waiters = {}
        self._waiters[waiter] = index

    def await_record(self, index: int, waiter: Waiter) -> None:
        """:meth:`when_done` where the record is after splits; its batch is awaited now."""
        batch_result, index = self.resolve_index(index)
        batch_result.when_done(index, waiter)
        if batch_result.count == 1 and batch_result.on_only_record_awaited is not None:
            batch_result.on_only_record_awaited()

    def knows(self, waiter: Waiter) -> bool:
        return self._waiters is not None and waiter in self._waiters

    def forget(self, waiter: Waiter) -> bool:
        """Undo :meth:`when_done`; False when there is nothing to undo."""
        return self._waiters is not None and self._waiters.pop(waiter, None) is not None

    def take_waiters(self) -> list[tuple[Waiter, int]]:
        waiters, self._waiters = self._waiters, None
        return list(waiters.items()) if waiters else []

    def error_of(self, index: int) -> KafkaError | None:
        """The error of the record ``index``; None: the batch has not failed."""
        if self.error is not None and self.record_errors is not None:
            return self.record_errors.get(index, self.error)
        return self.error

    def home_loop(self) -> asyncio.AbstractEventLoop:
        """The running event loop; raises unless it is the one that wakes waiters."""
        return home_loop(self.loop, may_rest=False)

    def _finish(self) -> None:
        self.done = True
        self.on_only_record_awaited = None
        if self._waiters:
            waiters, self._waiters = list(self._waiters), None
            try:
                wake_soon(waiters)
            except Exception:  # noqa: BLE001 - a closed event loop
                _log.exception(
                    "cannot wake the tasks that await %s-%d",
                    self.topic,
                    self.partition,
                    extra=log_fields(topic=self.topic, partition=self.partition),
                )
        if self.on_delivery is not None:
            hooked, self.hooked = self.hooked, []
            for delivery in hooked:
                delivery.add_done_callback(self.on_delivery)
