"""Sleep until a time, or until somebody has work: how the sender rests between its passes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.producer.lines import SOON

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NEVER", "Alarm"]

NEVER = float("inf")
# The coarsest step of an event loop's timers (seconds).
_LOOP_GRAIN = 0.001


class Alarm:
    """``clock`` gives the event loop's time in seconds."""

    __slots__ = ("_at", "_clock", "_resting", "_timer")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = NEVER
        self._resting: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def ring(self, when: float = 0.0) -> None:
        """End the sleep at the time ``when`` at the latest (0: now), or the next one."""
        if when < self._at:
            self._at = when
            if self._resting is not None:
                self._set(self._resting)

    def forget(self) -> None:
        """What was rung for so far is being seen to."""
        self._at = NEVER

    async def sleep(self, until: float) -> None:
        """Return at the time ``until``, or earlier if it has rung or rings."""
        resting = self._resting = asyncio.get_running_loop().create_future()
        self._at = min(until, self._at)
        self._set(resting)
        try:
            await resting
        finally:
            self._resting = None
            self._cancel()

    def _set(self, resting: asyncio.Future[None]) -> None:
        self._cancel()
        delay = self._at - self._clock() if self._at > 0.0 else 0.0
        if delay <= 0.0:
            self._at = 0.0
            _rouse(resting)
        elif delay != NEVER:
            self._timer = resting.get_loop().call_later(delay, self._timed, resting)

    def _timed(self, resting: asyncio.Future[None]) -> None:
        # uvloop rounds to whole milliseconds: a pass could find nothing to do yet.
        early = self._at - self._clock()
        if early > SOON:
            delay = max(early, _LOOP_GRAIN)
            self._timer = resting.get_loop().call_later(delay, self._timed, resting)
        else:
            _rouse(resting)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _rouse(resting: asyncio.Future[None]) -> None:
    if not resting.done():
        resting.set_result(None)
