"""Time limits that do not expire because the event loop was blocked: an answer that arrived in time
is read first."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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


async def wait_within(task: asyncio.Future[T], seconds: float) -> bool:
    """Whether the task is done, after a wait of up to ``seconds``. It is not cancelled."""
    with suppress(TimeoutError):
        async with time_limit(seconds):
            await asyncio.wait({task})
    return task.done()
