# cython: language_level=3, nonecheck=True
"""The compiled twin of ``_delivery_py.py``: the same names and behaviour; the reasons are told there.

Here a :class:`Delivery` is one small allocation. The garbage collector does not look at it before
something of the batch_result's holds it (a task, a callback): a program that holds a million of them
would stand still whenever it looks at them all.
"""

cimport cython

import asyncio
import logging
from bisect import bisect_right
from contextvars import copy_context
from inspect import iscoroutinefunction

from cpython.ref cimport PyObject

from kafkaclient.errors import ProducerStateError
from kafkaclient.types import NO_OFFSET, NO_TIMESTAMP, RecordMetadata

__all__ = ["Callback", "Delivery", "BatchResult"]

cdef extern from "Python.h":
    bint PyObject_GC_IsTracked(PyObject*)
    void PyObject_GC_Track(PyObject*)
    void PyObject_GC_UnTrack(PyObject*)

_log = logging.getLogger("kafkaclient.producer.batches.delivery")
cdef object running_loop = asyncio.get_running_loop
cdef str ELSEWHERE = (
    "a delivery can be awaited only in the event loop that its producer was started in; from "
    "another thread, use asyncio.run_coroutine_threadsafe"
)
cdef object CancelledError = asyncio.CancelledError
cdef object InvalidStateError = asyncio.InvalidStateError


cdef class BatchResult:
    """What became of one batch; all its records' deliveries point here."""

    def __init__(self, topic, on_unseen=None):
        self.topic = topic
        self.partition = -1
        self.base_offset = NO_OFFSET
        self.log_append_time = NO_TIMESTAMP
        self.on_unseen = on_unseen
        self.hooked = []

    def delivery_for_last(self, timestamp):
        """The delivery of the record that was added last."""
        return self.delivery_of_last(timestamp)

    cdef Delivery delivery_of_last(self, long long timestamp):
        cdef Delivery delivery = Delivery.__new__(Delivery)
        delivery._batch_result = self
        delivery._index = self.count - 1
        delivery._timestamp = timestamp
        delivery._unseen = delivery._counted = True
        PyObject_GC_UnTrack(<PyObject*>delivery)
        self.live_deliveries += 1
        if self.on_delivery is not None:
            delivery.show()
            self.hooked.append(delivery)
        return delivery

    cpdef int drop(self, Py_ssize_t index, Py_ssize_t count=1) except -1:
        """Nobody stands any more for the records from ``index`` on."""
        self.live_deliveries -= count
        if self.done:
            return 0
        # Most often the one after, or the one before, that was dropped last.
        if index == self._dropped_to:
            self._dropped_to += count
        elif index + count == self._dropped_from:
            self._dropped_from = index
        else:
            if self._dropped is None:
                self._dropped = []
            self._dropped.append((self._dropped_from, self._dropped_to))
            self._dropped_from, self._dropped_to = index, index + count
        return 0

    def resolve(self, base_offset, log_append_time=NO_TIMESTAMP):
        """The batch is written: its first record has ``base_offset`` (-1: not known)."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self._finish()

    def fail(self, error, record_errors=None):
        """The batch failed; ``record_errors`` names culprits by their index (KIP-467)."""
        self.error = error
        self.record_errors = record_errors
        self._finish()
        cdef Py_ssize_t unseen = self.count - self.live_deliveries
        if unseen > 0 and self.on_unseen is not None:
            self.on_unseen(self, error, unseen)

    def split_into(self, firsts, parts, places=None):
        """The batch was taken apart: the records from ``firsts[i]`` on went to ``parts[i]``, where
        they begin at ``places[i]`` (by default at 0)."""
        self._firsts, self._parts = firsts, parts
        self._shifts = firsts if places is None else [f - p for f, p in zip(firsts, places)]
        self.awaited = None  # it knows the batch, which is no more
        for waiter, index in self.take_waiters():
            part, at = self.resolve_index(index)
            part.when_done(at, waiter)
        hooked, self.hooked = self.hooked, []
        cdef Delivery delivery
        for delivery in hooked:
            part, _ = delivery._batch_result.resolve_index(delivery._index)
            part.on_delivery = self.on_delivery
            part.hooked.append(delivery)
        for part in dict.fromkeys(parts):
            part.live_deliveries = part.count
        dropped = [(self._dropped_from, self._dropped_to)]
        if self._dropped is not None:
            dropped += self._dropped
        for first, end in dropped:
            index = first
            while index < end:
                part, at, run = self.run_at(index)
                part.drop(at, min(run, end - index))
                index += run

    def resolve_index(self, index):
        """The batch_result (of the last split) that the record ``index`` belongs to, and its index."""
        cdef BatchResult batch_result = self
        while batch_result._parts is not None:
            at = bisect_right(batch_result._firsts, index) - 1
            index -= batch_result._shifts[at]
            batch_result = batch_result._parts[at]
        return batch_result, index

    def run_at(self, index):
        """:meth:`locate`, and how many records from there on have stayed together."""
        cdef BatchResult batch_result = self
        run = self.count - index
        while batch_result._parts is not None:
            at = bisect_right(batch_result._firsts, index) - 1
            if at + 1 < len(batch_result._firsts):
                run = min(run, batch_result._firsts[at + 1] - index)
            index -= batch_result._shifts[at]
            batch_result = batch_result._parts[at]
        return batch_result, index, run

    @property
    def waiting(self):
        """How many tasks and callbacks wait here."""
        return len(self._waiters or ())

    def when_done(self, index, Waiter waiter not None):
        """Wake the waiter once this batch_result, or the part that ``index`` moves to, is done."""
        if self._waiters is None:
            self._waiters = {}
        self._waiters[waiter] = index

    def knows(self, waiter):
        return self._waiters is not None and waiter in self._waiters

    def forget(self, waiter):
        """Undo :meth:`when_done`; False when there is nothing to undo."""
        return self._waiters is not None and self._waiters.pop(waiter, None) is not None

    def take_waiters(self):
        waiters, self._waiters = self._waiters, None
        return list(waiters.items()) if waiters else []

    def error_of(self, index):
        if self.error is not None and self.record_errors is not None:
            return self.record_errors.get(index, self.error)
        return self.error

    def check_home(self, loop):
        """Raise unless whoever waits in ``loop`` can be woken."""
        if self.loop is not None and loop is not self.loop:
            raise ProducerStateError(ELSEWHERE)

    cdef _finish(self):
        self.done = True
        self.awaited = None
        cdef list waiters
        if self._waiters:
            waiters, self._waiters = list(self._waiters), None
            try:
                (<Waiter>waiters[0]).loop.call_soon(wake_all, waiters)
            except Exception:  # a loop that is closed
                _log.exception("waking who waits for %s-%d failed", self.topic, self.partition)
        if self.on_delivery is not None:
            hooked, self.hooked = self.hooked, []
            for delivery in hooked:
                delivery.add_done_callback(self.on_delivery)


def wake_all(list waiters):
    """Wake all that wait for a batch, in one turn of the event loop."""
    cdef Py_ssize_t n
    cdef Waiter waiter
    for n in range(len(waiters)):
        waiter = waiters[n]
        try:
            waiter.wake()
        except Exception as error:  # the others wait for theirs
            waiter.loop.call_exception_handler(
                {"message": f"Exception in callback {waiter!r}", "exception": error}
            )
        except BaseException:  # the program is told to end, and may go on all the same
            waiter.loop.call_soon(wake_all, waiters[n + 1:])
            raise


cdef class Waiter:
    """Somebody who waits in a batch_result."""

    cdef object loop
    cdef object context

    cdef wake(self):
        raise NotImplementedError


@cython.final
cdef class Callback(Waiter):
    """A callback of a delivery; equal ones are the same callback of the same delivery."""

    cdef tuple _key

    def __init__(self, loop, callback, delivery, nth):
        self.loop = loop
        self.context = copy_context()
        self._key = (callback, delivery, nth)

    def __repr__(self):
        return f"{self._key[0]!r}({self._key[1]!r})"

    def __hash__(self):
        return hash(self._key[1:])  # a callback need not have a hash

    def __eq__(self, other):
        return isinstance(other, Callback) and self._key == (<Callback>other)._key

    cdef wake(self):
        self.context.run(self._key[0], self._key[1])


@cython.final
cdef class Awaiting(Waiter):
    """What a task that awaits a delivery waits for: an asyncio future as far as the task needs
    one, at a fraction of its cost. Tasks look for ``_asyncio_future_blocking``."""

    cdef public bint _asyncio_future_blocking
    cdef Delivery _delivery
    cdef object _callback
    cdef bint _cancelled

    def __iter__(self):
        return self

    def __next__(self):
        """Once to be waited for, then to say what became of the record."""
        if self._callback is None and not self._delivery.done():
            if self.loop is not self._delivery._batch_result.loop:  # or nobody knows
                self._delivery._batch_result.check_home(self.loop)
            self._asyncio_future_blocking = True
            return self
        raise StopIteration(self._delivery.result())

    def get_loop(self):
        return self.loop

    def add_done_callback(self, callback, *, context):
        self._callback, self.context = callback, context
        cdef BatchResult batch_result
        batch_result, index = self._delivery._batch_result.resolve_index(self._delivery._index)
        batch_result.when_done(index, self)
        if batch_result.count == 1 and batch_result.awaited is not None:
            batch_result.awaited()

    def cancel(self, msg=None):
        cdef BatchResult batch_result
        batch_result, _ = self._delivery._batch_result.resolve_index(self._delivery._index)
        if batch_result.done or self._cancelled or self._callback is None:
            return False
        self._cancelled = True
        batch_result.forget(self)
        self.loop.call_soon(self._callback, self, context=self.context)
        return True

    def result(self):
        """Asked by the task when it wakes; it learns the record's own result from ``__next__``."""
        if self._cancelled:
            raise CancelledError

    cdef wake(self):
        self.context.run(self._callback, self)


@cython.final
@cython.no_gc_clear
@cython.freelist(256)
cdef class Delivery:
    """One record on its way: await it for its :class:`RecordMetadata`, any number of times.

    Works with ``asyncio.gather``, ``wait``, ``wait_for``, ``as_completed`` and ``ensure_future``
    (not with ``create_task``, which takes coroutines only). Cancelling a task that awaits a
    delivery never takes the record back: once ``send`` has returned, the record is sent. If it
    fails and nobody looks (no await, ``exception()``, ``result()`` or callback), the failure is
    counted, logged and given to the producer's ``on_error``.
    """

    def __init__(self, BatchResult batch_result not None, index, timestamp):
        self._batch_result = batch_result
        self._index = index
        self._timestamp = timestamp
        self._unseen = self._counted = True

    def __reduce_ex__(self, protocol):
        raise TypeError("a Delivery cannot be copied or pickled: it stands for a record on its way")

    cdef int show(self) except -1:
        """Let the garbage collector look at it: it may become part of a cycle."""
        if not PyObject_GC_IsTracked(<PyObject*>self):
            PyObject_GC_Track(<PyObject*>self)
        return 0

    def hand_on(self):
        """Have something else stand for the record: (its batch_result, its index, 1)."""
        self._counted = False
        return self._batch_result, self._index, 1

    def __repr__(self):
        cdef BatchResult batch_result
        batch_result, index = self._batch_result.resolve_index(self._index)
        state = "pending"
        if batch_result.done:
            error = batch_result.error_of(index)
            state = f"failed: {error}" if error else f"offset={self.result().offset}"
        return f"<Delivery {batch_result.topic}-{batch_result.partition} {state}>"

    def __dealloc__(self):
        cdef BatchResult batch_result = self._batch_result
        if batch_result is None or not self._counted:
            return
        if batch_result._parts is None and (batch_result.error is None or not self._unseen):
            if self._index == batch_result._dropped_to and not batch_result.done:
                batch_result._dropped_to += 1  # what drop() does with the next one, most often
                batch_result.live_deliveries -= 1
            else:
                batch_result.drop(self._index)
            return
        batch_result, index = batch_result.resolve_index(self._index)
        batch_result.drop(index)
        if self._unseen and batch_result.error is not None and batch_result.on_unseen is not None:
            batch_result.on_unseen(batch_result, batch_result.error_of(index) or batch_result.error, 1)

    cpdef bint done(self):
        """Whether the record is acknowledged or has failed."""
        cdef BatchResult batch_result = self._batch_result
        if batch_result._parts is not None:
            batch_result, _ = batch_result.resolve_index(self._index)
        return batch_result.done

    def cancelled(self):
        """Always False: a record cannot be taken back. Here for ``asyncio.wait``."""
        return False

    def exception(self):
        """The error the record failed with, None when it was delivered.

        Raises:
            asyncio.InvalidStateError: it is not done yet.
        """
        self._unseen = False
        cdef BatchResult batch_result
        batch_result, index = self._batch_result.resolve_index(self._index)
        if not batch_result.done:
            raise InvalidStateError("the record is still on its way")
        return batch_result.error_of(index)

    cpdef result(self):
        """Where the record was written; raises the error it failed with.

        Raises:
            KafkaError: the record failed.
            asyncio.InvalidStateError: it is not done yet.
        """
        cdef BatchResult batch_result = self._batch_result
        cdef Py_ssize_t index = self._index
        self._unseen = False
        if batch_result._parts is not None:
            batch_result, at = batch_result.resolve_index(index)
            index = at
        if not batch_result.done:
            raise InvalidStateError("the record is still on its way")
        error = batch_result.error_of(index)
        if error is not None:
            raise error.for_one()
        cdef long long offset = batch_result.base_offset
        return RecordMetadata(
            batch_result.topic,
            batch_result.partition,
            offset if offset < 0 else offset + index,
            self._timestamp if batch_result.log_append_time < 0 else batch_result.log_append_time,
        )

    def add_done_callback(self, callback):
        """Call ``callback(delivery)`` from the event loop once the record is done (or at once
        in the loop's next turn if it is done already).

        Raises:
            TypeError: ``callback`` is not callable, or a coroutine function.
            ProducerStateError: it is not done yet, and this is not the producer's event loop.
        """
        if not callable(callback) or iscoroutinefunction(callback):
            raise TypeError(f"a callback must be a plain function, not {callback!r}")
        self._unseen = False
        loop = running_loop()
        cdef BatchResult batch_result
        batch_result, index = self._batch_result.resolve_index(self._index)
        if batch_result.done:
            loop.call_soon(callback, self)
            return
        self._batch_result.check_home(loop)
        self.show()
        nth = 0
        waiting = Callback(loop, callback, self, nth)
        while batch_result.knows(waiting):
            nth += 1
            waiting = Callback(loop, callback, self, nth)
        batch_result.when_done(index, waiting)

    def remove_done_callback(self, callback):
        """Take back :meth:`add_done_callback`; how many times it had been called with it."""
        cdef BatchResult batch_result
        batch_result, _ = self._batch_result.resolve_index(self._index)
        loop, removed = running_loop(), 0
        while batch_result.forget(Callback(loop, callback, self, removed)):
            removed += 1
        return removed

    def __await__(self):
        self._unseen = False
        cdef Awaiting awaiting = Awaiting.__new__(Awaiting)
        awaiting.loop = running_loop()
        awaiting._delivery = self
        if not self._batch_result.done:
            self.show()
        return awaiting

    def move_to(self, Delivery other not None):
        """Stand for another delivery's record: a parked record got its place in a batch."""
        cdef BatchResult parked = self._batch_result
        cdef BatchResult batch_result = other._batch_result
        parked.live_deliveries -= 1
        other.hand_on()
        self._batch_result, self._index = batch_result, other._index
        for waiter, _ in parked.take_waiters():
            batch_result.when_done(self._index, waiter)
        if batch_result.on_delivery is not None:
            self.show()
            batch_result.hooked[-1] = self  # the hook sees the handle that the caller holds
