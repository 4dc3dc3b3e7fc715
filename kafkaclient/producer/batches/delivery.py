# cython: nonecheck=True
"""What the caller holds: a light :class:`Delivery` for each record.

A record costs no asyncio future. Its :class:`Delivery` points at the :class:`BatchResult` of the
batch that holds the record. All tasks that await deliveries of one batch are woken together.

``delivery.pxd`` has the C types. A
compiled :class:`Delivery` is one small allocation. The garbage collector does not visit it until it
can be part of a cycle: a program that holds a million deliveries would stop during each collection.
"""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Never

import cython

from kafkaclient.types import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kafkaclient.errors import KafkaError

__all__ = ["Delivery", "delivery_for_last", "new_delivery"]

_running_loop = asyncio.get_running_loop
_new_metadata = tuple.__new__  # RecordMetadata's own __new__ is a Python function

if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)
    from kafkaclient.producer.batches.batch_result import BatchResult  # noqa: TC001 - C needs it
    from kafkaclient.producer.batches.waiters import Callback, TaskWaiter

    _track = _untrack = id  # whether the garbage collector visits a delivery: nothing to do


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
        """Have another object stand for the record: (its batch_result, its index, 1). Not for
        applications."""
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
        if batch_result.done:
            # No waiter leads back here any more. If the garbage collector visited the delivery, it
            # could clear what reports an unobserved failure before it frees the delivery.
            _untrack(self)
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
        """Stand for another delivery's record: a held record got its place in a batch. Not for
        applications."""
        held, batch_result = self._batch_result, other._batch_result
        held.live_deliveries -= 1
        other.detach()
        self._batch_result, self._index = batch_result, other._index
        for waiter, _ in held.take_waiters():
            batch_result.when_done(self._index, waiter)
        if batch_result.on_delivery is not None:
            _track(self)
            batch_result.hooked[-1] = self  # the hook is called with the caller's own delivery


def delivery_for_last(batch_result: BatchResult, timestamp: int) -> Delivery:
    """:func:`new_delivery` for a batch that is not atomic: called for each record, so without the
    check."""
    delivery = Delivery.__new__(Delivery)  # compiled, a call would cost more than the rest
    delivery._batch_result = batch_result
    delivery._index = batch_result.count - 1
    delivery._timestamp = timestamp
    delivery._unseen = delivery._counted = True
    batch_result.live_deliveries += 1
    if batch_result.on_delivery is None:
        _untrack(delivery)
    else:
        batch_result.hooked.append(delivery)
    return delivery


def new_delivery(batch_result: BatchResult, timestamp: int) -> Delivery:
    """The delivery of the record that was added last, which has this timestamp. An atomic batch has
    one delivery, that of its first record."""
    delivery = delivery_for_last(batch_result, timestamp)
    if batch_result.atomic:
        delivery._index = 0
    return delivery
