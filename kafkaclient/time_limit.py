"""Time limits, the end of tasks, clocks, and threads for calls that may hang."""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks, and return when all have ended. What they raise is dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- time limits that do not expire because the event loop was blocked ----------------------------

T = TypeVar("T")

_PUNCTUAL_S = 0.001  # a timer that fires later than this may run before sockets that wait longer
_LEAST_GRACE_S = 0.02
_MOST_GRACE_S = 1.0


class PatientTimer:
    """Calls ``callback()`` after ``seconds``. If the event loop was blocked at that moment, it
    first gets time to read its sockets: as long as the timer was late, from 20 ms to 1 s."""

    __slots__ = ("_callback", "_due", "_handle", "_loop")

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._due = self._loop.time() + max(0.0, seconds)
        self._handle: asyncio.TimerHandle = self._loop.call_at(self._due, self._look)

    def cancel(self) -> None:
        self._handle.cancel()

    def _look(self) -> None:
        lag = self._loop.time() - self._due
        if lag <= _PUNCTUAL_S:
            self._callback()
        else:
            grace = min(max(lag, _LEAST_GRACE_S), _MOST_GRACE_S)
            self._handle = self._loop.call_later(grace, self._callback)


@asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """``asyncio.timeout(seconds)`` with the patience of :class:`PatientTimer`; None: no limit."""
    now = asyncio.get_running_loop().time
    async with asyncio.timeout(None) as limit:
        timer = None
        if seconds is not None:
            timer = PatientTimer(seconds, lambda: limit.reschedule(now()))
        try:
            yield limit
        finally:
            if timer is not None:
                timer.cancel()


def why_given_up(error: Exception, seconds: float) -> str:
    """The text of an error, for messages. The TimeoutError of a time limit has none."""
    return str(error) or f"no answer within {seconds:g} s"


async def wait_within(task: asyncio.Future[T], seconds: float) -> bool:
    """Whether the task is done, after a wait of up to ``seconds``. It is not cancelled."""
    with suppress(TimeoutError):
        async with time_limit(seconds):
            await asyncio.wait({task})
    return task.done()


# --- the monotonic clock for waits of threads -----------------------------------------------------

if sys.platform == "win32":
    monotonic = time.monotonic
else:
    monotonic = partial(time.clock_gettime, getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC))
    """Seconds of the clock of ``time.monotonic``, also in a test that freezes the time: freezegun,
    and time-machine before 3.0, replace ``time.monotonic``, with which a wait would never end."""


# --- The event loop of this project's own programs ------------------------------------------------


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop factory for ``asyncio.Runner``: uvloop's, or None if it is not installed."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory


# --- Threads for calls that may hang. They do not keep a program from ending ----------------------

P = ParamSpec("P")


class DaemonThreads(Executor):
    """Runs each call in a daemon thread of its own.

    A ThreadPoolExecutor joins its threads when the program ends. A thread that waits for a server
    that does not answer would keep the program from ending. The event loop's default executor has
    few threads, and an application can occupy all of them.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - it is raised where the future is awaited
                future.set_exception(error)
            else:
                future.set_result(result)

        Thread(target=run, name="kafkaclient-call", daemon=True).start()
        return future
