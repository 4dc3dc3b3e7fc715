# cython: nonecheck=True
"""A delivery as an asyncio future, for code that needs ``asyncio.isfuture``.

A :class:`~kafkaclient.Delivery` is shared by all that wait for its record, so it must not be a
future itself: ``asyncio.wait_for`` before Python 3.12, and a cancelled ``asyncio.gather``, cancel
the futures that they were given, and would end the waiting of all others. A
:class:`DeliveryFuture` is a handle of one owner, made on demand.

The future is one waiter of its batch's result. When the result wakes the future, the future wakes
its own waiters.

``delivery_future.pxd`` has the C types.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Never

import cython

from kafkaclient.log_fields import log_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context

    from kafkaclient.errors import KafkaError
    from kafkaclient.types import RecordMetadata

__all__ = ["DeliveryFuture"]

_log = logging.getLogger("kafkaclient.producer.batches.delivery_future")
_running_loop = asyncio.get_running_loop

if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)
    from kafkaclient.producer.batches.delivery import Delivery  # noqa: TC001 - C needs it here
    from kafkaclient.producer.batches.waiters import (
        Callback,
        TaskWaiter,
        Waiter,
        cancelled_error,
        home_loop,
        wake_all,
        wake_soon,
    )

    _track = _untrack = id  # whether the garbage collector visits a future: nothing to do


class DeliveryFuture(Waiter):
    """The outcome of one record as an asyncio future: ``DeliveryFuture(await producer.send(...))``.

    ``asyncio.isfuture`` is true of it. So ``asyncio.wait``, ``gather``, ``shield``, ``wait_for``
    and ``loop.run_until_complete`` use it as it is, without a task for each record.

    :meth:`cancel` cancels this future only: the record is sent all the same, and what waits for
    the delivery, or for another future of the delivery, goes on waiting. Cancelling a task that
    awaits this future does not cancel the future. A record whose failure is read neither here nor
    from the delivery is counted, logged and given to the producer's ``on_error``.

    A subclass may translate the outcome with :meth:`_translate_result` and
    :meth:`_translate_error`. They are called once, when the outcome is read first. Give the
    subclass ``__slots__ = ()``.
    """

    __slots__ = (
        "__weakref__",
        "_asyncio_future_blocking",
        "_cancel_message",
        "_cancelled",
        "_delivery",
        "_failed",
        "_outcome",
        "_settled",
        "_waiters",
    )

    def __init__(self, delivery: Delivery) -> None:
        if getattr(delivery, "_batch_result", None) is None:
            raise TypeError(f"a DeliveryFuture is made of a Delivery, not of {delivery!r}")
        self._delivery = delivery
        self._asyncio_future_blocking = self._cancelled = self._settled = self._failed = False
        self._cancel_message: object = None
        self._outcome: Any = None
        self._waiters: list[Waiter] | None = None
        """The callbacks and tasks that wait for this future, in order; None: there are none."""
        _untrack(self)

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError(
            "a DeliveryFuture cannot be copied or pickled: it stands for a record on its way"
        )

    def __repr__(self) -> str:
        state = "cancelled " if self._cancelled else ""
        return f"<{type(self).__name__} {state}{self._delivery!r}>"

    def _translate_result(self, metadata: RecordMetadata) -> Any:
        """What :meth:`result` and ``await`` return for a record that was written.

        An exception that is raised here becomes the outcome."""
        return metadata

    def _translate_error(self, error: KafkaError) -> BaseException:
        """What :meth:`result` and ``await`` raise for a record that failed; ``error`` is a copy.

        An exception that is raised here becomes the outcome."""
        return error

    # --- the outcome ----------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed, or the future is cancelled."""
        return self._cancelled or self._delivery.done()

    def cancelled(self) -> bool:
        """Whether :meth:`cancel` ended this future."""
        return self._cancelled

    def result(self) -> Any:
        """Where the record was written, as :class:`~kafkaclient.RecordMetadata` unless a subclass
        translates it; raises the error that the record failed with.

        Raises:
            KafkaError: the record failed.
            asyncio.CancelledError: the future is cancelled.
            asyncio.InvalidStateError: the record is still on its way.
        """
        self._settle()
        if self._failed:
            raise self._outcome.with_traceback(None)
        return self._outcome

    def exception(self) -> BaseException | None:
        """The error that the record failed with; None: the record was written.

        Raises:
            asyncio.CancelledError: the future is cancelled.
            asyncio.InvalidStateError: the record is still on its way.
        """
        self._settle()
        return self._outcome if self._failed else None

    def _settle(self) -> None:
        """Read the delivery's outcome, and translate it; raises if there is none."""
        if self._cancelled:
            raise self._make_cancelled_error()
        if self._settled:
            return
        error = self._delivery.exception()
        failed = error is not None
        try:
            if error is None:
                outcome = self._translate_result(self._delivery.result())
            else:
                outcome = self._translate_error(error.for_one())
        except (Exception, asyncio.CancelledError) as defect:  # noqa: BLE001
            # It must reach what waits for this future.
            result = self._delivery._batch_result
            _log.exception(
                "cannot translate the outcome of %r",
                self._delivery,
                extra=log_fields(error, topic=result.topic, partition=result.partition),
            )
            outcome, failed = defect, True
        if failed:
            if not isinstance(outcome, BaseException):
                outcome = TypeError(f"an error was translated to {outcome!r}, not to an exception")
            elif isinstance(outcome, (asyncio.CancelledError, StopIteration)):
                # asyncio would take these for the end of a task, or of a generator.
                outcome = RuntimeError(f"the outcome was translated to {outcome!r}")
            _track(self)  # the traceback of a raised error may lead back here
        self._outcome, self._failed = outcome, failed
        self._settled = True

    # --- callbacks and cancelling ---------------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The producer's event loop."""
        return self._delivery._batch_result.loop or _running_loop()

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Call ``callback(future)`` in ``context`` (default: a copy of the current one), from the
        event loop, once the future is done; if it is done already, in the loop's next iteration.
        An exception of the callback goes to the loop's exception handler.

        Raises:
            ProducerStateError: the running event loop is not the producer's.
        """
        loop = home_loop(self._delivery._batch_result.loop, may_rest=True)
        if context is None:
            context = copy_context()
        if self.done():
            loop.call_soon(callback, self, context=context)
        else:
            self._add(Callback(loop, callback, self, 0, context))

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Take back :meth:`add_done_callback`; returns how many times ``callback`` was added."""
        waiters = self._waiters or []
        kept = [w for w in waiters if not (isinstance(w, Callback) and w.has_callback(callback))]
        self._set_waiters(kept)
        return len(waiters) - len(kept)

    def cancel(self, msg: object = None) -> bool:
        """Cancel this future; the record is sent all the same. Returns False if the future was done
        before."""
        if self.done():
            return False
        self._cancelled, self._cancel_message = True, msg
        waiters = self._waiters
        if waiters is not None:
            self._set_waiters([])
            wake_soon(waiters)
        return True

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        """The error of a cancelled future; ``asyncio.gather`` calls this."""
        return cancelled_error(self._cancel_message)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            waiter = TaskWaiter(home_loop(self._delivery._batch_result.loop, may_rest=True))
            self._add(waiter)
            # Its batch need not linger for company.
            self._delivery._batch_result.await_record(self._delivery._index, self)
            try:
                yield waiter
            except BaseException:  # the task is cancelled, or freed
                self._set_waiters([w for w in self._waiters or [] if w is not waiter])
                raise
        return self.result()

    def wake(self) -> None:
        """Wake the tasks that await the future; not for applications."""
        waiters, self._waiters = self._waiters, None
        if waiters:
            wake_all(waiters)

    def _add(self, waiter: Waiter) -> None:
        if self._waiters is None:
            self._waiters = []
            self.loop: asyncio.AbstractEventLoop = waiter.loop
            _track(self)
            _track(self._delivery)
            batch_result, index = self._delivery._batch_result.resolve_index(self._delivery._index)
            batch_result.when_done(index, self)
        self._waiters.append(waiter)

    def _set_waiters(self, waiters: list[Waiter]) -> None:
        """Replace the waiters. With none left, the batch result need not wake this future."""
        if waiters:
            self._waiters = waiters
        elif self._waiters is not None:
            self._waiters = None
            batch_result, _ = self._delivery._batch_result.resolve_index(self._delivery._index)
            batch_result.forget(self)
