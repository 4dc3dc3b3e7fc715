# cython: nonecheck=True
"""What the caller holds: a light :class:`Delivery` per record, a :class:`BatchResult` per batch.

A record costs no asyncio future. Its :class:`Delivery` points at the :class:`BatchResult` of the
batch that holds the record. All tasks that await deliveries of one batch are woken together.

This file is the source of the compiled ``_delivery`` as well; ``_delivery.pxd`` has the C types. A
compiled :class:`Delivery` is one small allocation. The garbage collector does not visit it until it
can be part of a cycle: a program that holds a million deliveries would stop during each collection.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from contextvars import Context
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Never, TypeAlias

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.log_fields import log_fields
from kafkaclient.types import NO_OFFSET, NO_TIMESTAMP, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import cython

    from kafkaclient.errors import KafkaError
else:
    from kafkaclient.compiled_modules import cython

__all__ = ["BatchResult", "Delivery", "Run"]

Run: TypeAlias = "tuple[BatchResult, int, int]"
"""Records that follow each other in a batch: the batch's result, the index of the first, their
count."""

_log = logging.getLogger("kafkaclient.producer.batches.delivery")  # compiled, __name__ is another
_running_loop = asyncio.get_running_loop
_new_metadata = tuple.__new__  # RecordMetadata's own __new__ is a Python function

if not cython.compiled:  # in C, see _delivery.pxd
    from kafkaclient.producer.batches.waiters import (
        Callback,
        TaskWaiter,
        Waiter,
        home_loop,
        wake_soon,
    )

    _track = _untrack = id  # whether the garbage collector visits a delivery: nothing to do


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
        self.on_delivery: Callable[[Delivery], object] | None = None
        """The producer's ``on_delivery``; called for each record, in order."""
        self.hooked: list[Delivery] = []
        """The deliveries that ``on_delivery`` will be called with; empty without it."""
        self.on_only_record_awaited: Callable[[], None] | None = None
        """Ends the batch's linger. Called when a task awaits the batch's only record so far."""
        self._waiters: dict[Waiter, int] | None = None  # to the record's index
        self._parts: tuple[list[int], list[BatchResult], list[int]] | None = None
        # Records without a live delivery: the latest run of them, and the runs before it.
        self._dropped_from = self._dropped_to = 0
        self._dropped: list[tuple[int, int]] | None = None

    def delivery_for_last(self, timestamp: int) -> Delivery:
        """:meth:`new_delivery` of a batch that is not atomic: called for each record, so without
        the check."""
        delivery = Delivery.__new__(Delivery)  # compiled, a call would cost more than the rest
        delivery._batch_result = self
        delivery._index = self.count - 1
        delivery._timestamp = timestamp
        delivery._unseen = delivery._counted = True
        self.live_deliveries += 1
        if self.on_delivery is None:
            _untrack(delivery)
        else:
            self.hooked.append(delivery)
        return delivery

    def new_delivery(self, timestamp: int) -> Delivery:
        """The delivery of the record that was added last, which has this timestamp. An atomic batch
        has one delivery, that of its first record."""
        delivery = self.delivery_for_last(timestamp)
        if self.atomic:
            delivery._index = 0
        return delivery

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
        self._parts = (firsts, parts, shifts)
        self.on_only_record_awaited = None  # it refers to the batch, which is gone
        for waiter, index in self.take_waiters():
            part, at = self.resolve_index(index)
            part.when_done(at, waiter)
        hooked, self.hooked = self.hooked, []
        for delivery in hooked:
            # The delivery may point at a batch that was split before.
            part, _ = delivery._batch_result.resolve_index(delivery._index)
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
        """See :meth:`Delivery.when_settled`; ``index`` is the record's."""
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


@cython.freelist(256)
@cython.no_gc_clear
@cython.cclass
class Delivery:
    """One record on its way: await it for its :class:`RecordMetadata`, any number of times.

    Works with ``asyncio.gather``, ``wait``, ``wait_for``, ``as_completed`` and ``ensure_future``
    (not with ``create_task``, which takes coroutines only). Cancelling a task that awaits a
    delivery never takes the record back: once ``send`` has returned, the record is sent. If the
    record fails unobserved (no await, ``exception()``, ``result()`` or callback), the failure is
    counted, logged and given to the producer's ``on_error``.
    """

    __slots__ = ("_batch_result", "_counted", "_index", "_timestamp", "_unseen")

    def __init__(self, batch_result: BatchResult, index: int, timestamp: int) -> None:
        self._batch_result = batch_result
        self._index = index
        self._timestamp = timestamp
        self._unseen = self._counted = True

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("a Delivery cannot be copied or pickled: it stands for a record on its way")

    def detach(self) -> tuple[BatchResult, int, int]:
        """Have another object stand for the record: (its batch_result, its index, 1)."""
        self._counted = False
        return self._batch_result, self._index, 1

    def __repr__(self) -> str:
        batch_result, index = self._batch_result.resolve_index(self._index)
        state = "pending"
        if batch_result.done:
            error = batch_result.error_of(index)
            state = f"failed: {error}" if error else f"offset={self.result().offset}"
        return f"<Delivery {batch_result.topic}-{batch_result.partition} {state}>"

    def __dealloc__(self) -> None:
        batch_result = self._batch_result
        if batch_result is None or not self._counted:
            return
        if batch_result._parts is None and (batch_result.error is None or not self._unseen):
            if self._index == batch_result._dropped_to and not batch_result.done:
                batch_result._dropped_to += 1  # as drop() does with the next record, most often
                batch_result.live_deliveries -= 1
            else:
                batch_result.drop(self._index)
            return
        part, index = batch_result.resolve_index(self._index)
        part.drop(index)
        if self._unseen and part.error is not None and part.on_unseen is not None:
            records = part.count if part.atomic else 1
            part.on_unseen(part, part.error_of(index) or part.error, records)

    if not cython.compiled:
        __del__ = __dealloc__

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        batch_result = self._batch_result
        if batch_result._parts is not None:
            batch_result, _ = batch_result.resolve_index(self._index)
        return batch_result.done

    def cancelled(self) -> bool:
        """Always False: a record cannot be taken back. Here for ``asyncio.wait``."""
        return False

    def exception(self) -> KafkaError | None:
        """The error the record failed with, None when it was delivered.

        Raises:
            asyncio.InvalidStateError: it is not done yet.
        """
        self._unseen = False
        batch_result, index = self._batch_result.resolve_index(self._index)
        if not batch_result.done:
            raise asyncio.InvalidStateError("the record is still on its way")
        return batch_result.error_of(index)

    def result(self) -> RecordMetadata:
        """Where the record was written; raises the error it failed with.

        Raises:
            KafkaError: the record failed.
            asyncio.InvalidStateError: it is not done yet.
        """
        self._unseen = False
        batch_result, index = self._batch_result, self._index
        if batch_result._parts is not None:
            batch_result, index = batch_result.resolve_index(index)
        if not batch_result.done:
            raise asyncio.InvalidStateError("the record is still on its way")
        if batch_result.error is not None:
            raise (batch_result.error_of(index) or batch_result.error).for_one()
        offset = batch_result.base_offset
        if batch_result.log_append_time >= 0:
            at, timestamp_type = batch_result.log_append_time, 1
        else:  # CreateTime; without an offset, which acks=0 leaves out, nothing is known
            at, timestamp_type = self._timestamp, -1 if offset < 0 else 0
        return _new_metadata(
            RecordMetadata,
            (
                batch_result.topic,
                batch_result.partition,
                offset if offset < 0 else offset + index,
                at,
                timestamp_type,
                batch_result.log_start_offset,
            ),
        )

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call ``callback(delivery)`` from the event loop once the record is done (or at once
        in the loop's next iteration if it is done already).

        Raises:
            TypeError: ``callback`` is not callable, or a coroutine function.
            ProducerStateError: it is not done yet, and this is not the producer's event loop.
        """
        if not callable(callback) or iscoroutinefunction(callback):
            raise TypeError(f"a callback must be a plain function, not {callback!r}")
        self._unseen = False
        batch_result, index = self._batch_result.resolve_index(self._index)
        if batch_result.done:
            _running_loop().call_soon(callback, self)
            return
        loop = batch_result.home_loop()
        _track(self)
        nth = 0
        while batch_result.knows(waiting := Callback(loop, callback, self, nth)):
            nth += 1
        batch_result.when_done(index, waiting)

    def when_settled(
        self, callback: Callable[[Any], object], target: object, awaited: bool = False
    ) -> None:
        """Call ``callback(target)`` from the event loop once the record has its outcome. The
        context variables are empty then: the outcome belongs to no request.

        Unlike :meth:`add_done_callback`, this does not count as looking at the outcome: a failure
        is still reported as unobserved. ``awaited``: the batch need not linger for other records.
        """
        _track(self)
        self._batch_result.when_settled(self._index, callback, target, awaited)

    def peek(self) -> tuple[str, int, int, KafkaError | None]:
        """(topic, partition, offset, error) of a record that is done. Unlike :meth:`exception` and
        :meth:`result`, the call does not count as looking at the outcome."""
        batch_result, index = self._batch_result.resolve_index(self._index)
        offset = batch_result.base_offset
        if offset >= 0:
            offset += index
        return batch_result.topic, batch_result.partition, offset, batch_result.error_of(index)

    @property
    def batch_result(self) -> BatchResult:
        """What has the outcome of the record, together with those of the other records of its
        batch. Another one after the batch was split."""
        return self._batch_result.resolve_index(self._index)[0]

    def remove_done_callback(self, callback: Callable[[Delivery], Any]) -> int:
        """Take back :meth:`add_done_callback`; how many times it had been called with it."""
        batch_result, _ = self._batch_result.resolve_index(self._index)
        loop, removed = _running_loop(), 0
        while batch_result.forget(Callback(loop, callback, self, removed)):
            removed += 1
        return removed

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        self._unseen = False
        if not self.done():
            waiter = TaskWaiter(self._batch_result.home_loop())
            _track(self)
            self._batch_result.await_record(self._index, waiter)
            try:
                yield waiter
            except BaseException:  # the task is cancelled, or freed
                batch_result, _ = self._batch_result.resolve_index(self._index)
                batch_result.forget(waiter)
                raise
        return self.result()

    def move_to(self, other: Delivery) -> None:
        """Stand for another delivery's record: a held record got its place in a batch."""
        held, batch_result = self._batch_result, other._batch_result
        held.live_deliveries -= 1
        other.detach()
        self._batch_result, self._index = batch_result, other._index
        for waiter, _ in held.take_waiters():
            batch_result.when_done(self._index, waiter)
        if batch_result.on_delivery is not None:
            _track(self)
            batch_result.hooked[-1] = self  # the hook is called with the caller's own delivery


use_compiled(globals())
