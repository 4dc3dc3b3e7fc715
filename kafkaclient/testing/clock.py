"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it.

A test of a 120 s delivery timeout takes milliseconds, however busy the machine is. Virtual time
applies to everything that uses the loop's clock and timers: ``asyncio.sleep``, ``asyncio.timeout``,
``loop.call_later``, ``loop.time``. It does not apply to ``time.monotonic`` and ``time.time``, so
code under test takes its clock as an argument.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor, Future

__all__ = ["VirtualDeadlockError", "VirtualTimeLoop", "run_virtual", "virtual_time"]

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

# Real seconds to wait for sockets and other threads before an idle loop counts as deadlocked: a
# poll that does not wait cannot see data that the kernel or another thread still handles.
_KERNEL_GRACE_S = 1.0


class VirtualDeadlockError(RuntimeError):
    """The loop waits for an event that cannot happen, or has passed its virtual time limit."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop with a virtual clock that starts at ``start`` seconds.

    The loop polls real file descriptors without waiting before the clock jumps. Work in an executor
    takes no virtual time: the clock stops until the work is done, also if its task was cancelled.
    The loop raises :class:`VirtualDeadlockError`, which names the waiting tasks, when nothing is
    ready and no timer is left. It also does so when the clock would pass ``limit`` virtual seconds,
    because a periodic timer keeps a stuck program running.
    """

    def __init__(self, start: float = 0.0, limit: float = 7 * 86_400.0) -> None:
        self._now = start
        self._limit = start + limit
        self._executor_jobs = 0
        self._default_executor: ThreadPoolExecutor | None = None  # the base class's
        super().__init__(_JumpingSelector(self._idle))

    def time(self) -> float:
        return self._now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        if executor is None:
            executor = self._default_executor
            if executor is None:
                executor = ThreadPoolExecutor(thread_name_prefix="virtual-time")
                self.set_default_executor(executor)
        work = executor.submit(func, *args)
        self._executor_jobs += 1
        future = asyncio.wrap_future(work, loop=self)
        # Of the thread's future: the thread goes on when the other one is cancelled. And behind the
        # other one's callback, so that its result is there before the clock may go on.
        work.add_done_callback(self._executor_job_done)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        self._executor_jobs += 1  # Python 3.12 and newer set a timer, which must not end the wait
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._executor_jobs -= 1

    def _executor_job_done(self, _: Future[Any]) -> None:
        """Called in any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self.call_soon_threadsafe(self._forget_executor_job)

    def _forget_executor_job(self) -> None:
        self._executor_jobs -= 1

    def _idle(self, timeout: float | None, outside_help: bool) -> float | None:
        """Jump to the next timer when nothing is ready. Returns the real seconds to wait for
        sockets and other threads; None waits without a limit."""
        if self._executor_jobs:
            return None
        if timeout is None:
            if outside_help:
                return _KERNEL_GRACE_S
            raise self._deadlock("nothing is ready and no timer is scheduled")
        # Not now + timeout: that sum may be rounded to a time just before the timer.
        when: float = self._scheduled[0].when()  # type: ignore[attr-defined]
        if when > self._limit:
            raise self._deadlock(f"the next timer, at {when:.3f} s, is past the limit")
        self._now = max(self._now, when)
        return 0.0

    def _deadlock(self, why: str) -> VirtualDeadlockError:
        waiting = "".join(f"\n  {task!r}" for task in asyncio.all_tasks(self))
        return VirtualDeadlockError(
            f"{why} at virtual time {self._now:.3f} s; unfinished tasks:{waiting or ' none'}"
        )


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that polls without waiting, and calls ``idle`` when no event is ready."""

    def __init__(self, idle: Callable[[float | None, bool], float | None]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        # The loop's own wake-up pipe is always registered.
        outside_help = len(self.get_map()) > 1 or threading.active_count() > 1
        if not outside_help and (events := super().select(0)):
            return events  # another thread woke the loop after the first poll
        wait = self._idle(timeout, outside_help)
        if wait == 0.0:
            return events
        started = time.monotonic()
        events = super().select(wait)
        if not events and timeout is None and wait is not None:
            if time.monotonic() - started < wait:
                return events  # a signal interrupted the wait
            self._idle(None, False)
        return events


def run_virtual(
    main: Coroutine[Any, Any, T], *, start: float = 0.0, limit: float = 7 * 86_400.0
) -> T:
    """Run ``main`` to its end on a fresh :class:`VirtualTimeLoop` and return its result.

    Raises :class:`VirtualDeadlockError` when ``main`` can make no further progress.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(start, limit)) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Decorate an async test so that it runs in virtual time.

    pytest sees a plain function, so it works with and without pytest-asyncio; the test's async
    fixtures would run on another loop: build what needs the loop inside the test.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test(*args, **kwargs))

    return run
