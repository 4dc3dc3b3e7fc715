"""The tasks and callbacks that wait for a batch's outcome. One call wakes all of them.

``waiters.pxd`` has the C types.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import cython

from kafkaclient.errors import ProducerStateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

__all__ = [
    "Callback",
    "TaskWaiter",
    "Waiter",
    "cancelled_error",
    "home_loop",
    "runs_here",
    "wake_all",
    "wake_soon",
]

_running_loop = asyncio.get_running_loop
_running_loop_or_none = asyncio._get_running_loop

if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)

    def is_kept_loop(loop: asyncio.AbstractEventLoop | None) -> bool:
        """Whether the loop runs in this thread, by what asyncio keeps in the thread's state."""
        return False  # only asyncio itself knows


def runs_here(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether the event loop runs, in this thread."""
    return is_kept_loop(loop) or _running_loop_or_none() is loop


def home_loop(loop: asyncio.AbstractEventLoop | None, may_rest: bool) -> asyncio.AbstractEventLoop:
    """``loop``, a producer's event loop; None: the running one. With ``may_rest`` no loop needs to
    run: callbacks can be added before ``loop.run_until_complete``.

    Raises ProducerStateError if another loop runs, and RuntimeError if a loop should run.
    """
    if loop is None:
        return _running_loop()
    if not runs_here(loop):
        running = _running_loop_or_none() if may_rest else _running_loop()
        if running is not None:
            raise ProducerStateError(
                "a delivery can be awaited only in the event loop that its producer was started "
                "in; from another thread, use asyncio.run_coroutine_threadsafe"
            )
    return loop


def cancelled_error(message: object) -> asyncio.CancelledError:
    """The error of a wait that was cancelled with ``message``, by which anyio and others recognize
    the cancellations that they have asked for. None: there is no message."""
    return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)


class Waiter:
    """A task or a callback that waits for a batch's outcome."""

    __slots__ = ("context", "loop")

    loop: asyncio.AbstractEventLoop
    context: Context

    def wake(self) -> None:
        raise NotImplementedError


def wake_soon(waiters: list[Waiter]) -> None:
    """Wake the waiters of a batch in the next iteration of their event loop, all in one call."""
    first = waiters[0]
    first.loop.call_soon(wake_all, waiters)


def wake_all(waiters: list[Any]) -> None:
    """Wake each waiter, and take it out of the list, so that it is freed at once.

    Otherwise the waiters pile up beside those that the same tasks create for their next records,
    and the garbage collector runs.
    """
    for n, waiter in enumerate(waiters):
        waiters[n] = None
        try:
            waiter.wake()
        except Exception as error:  # noqa: BLE001 - the other waiters must be woken
            waiter.loop.call_exception_handler(
                {"message": f"Exception in callback {waiter!r}", "exception": error}
            )
        except BaseException:  # the program is asked to end, and may go on all the same
            waiter.loop.call_soon(wake_all, waiters[n + 1 :])
            raise


class Callback(Waiter):
    """Calls ``callback(target)`` in ``context``.

    Two of them are equal if callback, target and ``nth`` are equal: so a delivery finds what it has
    to remove. ``nth``: how many times the same callback was added before. A DeliveryFuture passes
    0, because it keeps its waiters in a list.
    """

    __slots__ = ("_key",)

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: Callable[[Any], object],
        target: object,
        nth: int,
        context: Context | None = None,
    ) -> None:
        self.loop = loop
        self.context = copy_context() if context is None else context
        self._key = (callback, target, nth)

    def __repr__(self) -> str:
        return f"{self._key[0]!r}({self._key[1]!r})"

    def __hash__(self) -> int:
        return hash(self._key[1:])  # a callback need not have a hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Callback) and self._key == other._key

    def has_callback(self, callback: object) -> bool:
        return bool(self._key[0] == callback)

    def wake(self) -> None:
        self.context.run(self._key[0], self._key[1])


class TaskWaiter(Waiter):
    """What a task waits for while it awaits a delivery: an asyncio future as far as the task needs
    one, at a fraction of its cost. Tasks look for ``_asyncio_future_blocking``."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_callback",
        "_cancel_message",
        "_cancelled",
        "_done",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._callback: Callable[[TaskWaiter], object] | None = None
        self._cancel_message: object = None
        self._cancelled = self._done = False
        self._asyncio_future_blocking = True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def add_done_callback(
        self, callback: Callable[[TaskWaiter], object], *, context: Context
    ) -> None:
        if self._done:  # only if the coroutine is run by other code than a task in between
            self.loop.call_soon(callback, self, context=context)
        self._callback, self.context = callback, context

    def cancel(self, msg: object = None) -> bool:
        if self._done or self._callback is None:
            return False
        self._done = self._cancelled = True
        self._cancel_message = msg
        self.loop.call_soon(self._callback, self, context=self.context)
        return True

    def result(self) -> None:
        """Called by the task when it wakes; it gets the record's own result from the delivery."""
        if self._cancelled:
            raise cancelled_error(self._cancel_message)

    def wake(self) -> None:
        if not self._done:
            self._done = True
            if self._callback is not None:
                self.context.run(self._callback, self)
