"""The event loop's pulse: tells a broker's silence from our own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PERIOD", "LoopMonitor"]

PERIOD = 0.02
"""The time between two beats, in seconds."""
# A beat later than this means that the loop was blocked: answers may lie unread in the sockets.
_TOLERANCE = 0.01


class LoopMonitor:
    """Beats while there is something to wait for.

    ``on_beat(now)`` is called with every beat and says whether to go on, ``on_lag(seconds)`` by
    how much a beat was late. ``clock`` gives the event loop's time in seconds.
    """

    __slots__ = ("_awake_since", "_clock", "_due", "_on_beat", "_on_lag", "_timer")

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        on_beat: Callable[[float], bool],
        on_lag: Callable[[float], None],
    ) -> None:
        self._clock = clock
        self._on_beat = on_beat
        self._on_lag = on_lag
        self._awake_since = float("-inf")
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Beat from now on, until ``on_beat`` says that it is enough."""
        if self._timer is None:
            self._arm(self._clock())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def unblocked_since(self, now: float) -> float:
        """Since when the event loop has run without being blocked, as far as is known.

        That is ``now`` while a beat is overdue: nothing that came in meanwhile has been read yet.
        """
        if self._timer is not None and now - self._due > _TOLERANCE:
            return now
        return self._awake_since

    def _arm(self, now: float) -> None:
        self._due = now + PERIOD
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._tick)

    def _tick(self) -> None:
        now = self._clock()
        lag = max(0.0, now - self._due)
        self._on_lag(lag)
        if lag > _TOLERANCE:
            self._awake_since = now
        self._timer = None
        if self._on_beat(now) and self._timer is None:  # it may have been started from there
            self._arm(now)
