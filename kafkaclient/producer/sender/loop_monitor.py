"""Notices when the event loop was blocked: then a missing answer is not the broker's fault."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

PERIOD_S = 0.02
"""The time between two ticks, in seconds."""
_TOLERANCE_S = 0.01  # a later tick means a blocked loop: sockets may hold unread answers
_BAD_LAG_S = 1.0  # a shorter lag shows in the metric only
_WARNING_INTERVAL_S = 60.0  # how often a bad lag is logged at most


class LoopMonitor:
    """Ticks while there is something to wait for.

    ``on_tick(now)`` is called with every tick and returns whether to go on, ``on_lag(seconds)`` by
    how much a tick was late. ``clock`` gives the event loop's time in seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        on_tick: Callable[[float], bool],
        on_lag: Callable[[float], None],
    ) -> None:
        self._clock = clock
        self._on_tick = on_tick
        self._on_lag = on_lag
        self._unblocked_since = float("-inf")
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Tick from now on, until ``on_tick`` returns False."""
        if self._timer is None:
            self._due = self._clock() + PERIOD_S
            self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def unblocked_since(self, now: float) -> float:
        """Since when the event loop has run without being blocked, as far as is known.

        That is ``now`` while a tick is late: what arrived since then has not been read yet.
        """
        if self._timer is not None and now - self._due > _TOLERANCE_S:
            return now
        return self._unblocked_since

    def seconds_since(self, then: float) -> float | None:
        """The time since ``then``; None: the event loop was blocked meanwhile."""
        now = self._clock()
        return now - then if self.unblocked_since(now) <= then else None

    def _tick(self) -> None:
        now = self._clock()
        lag = max(0.0, now - self._due)
        self._on_lag(lag)
        if lag > _TOLERANCE_S:
            self._unblocked_since = now
        self._timer = None
        if self._on_tick(now):
            self.start()


class LoopLagWarning:
    """Passes each measured lag to ``record(seconds)``, and logs bad ones, at most once a minute by
    ``clock`` (seconds)."""

    def __init__(self, clock: Callable[[], float], record: Callable[[float], None]) -> None:
        self._clock = clock
        self._record = record
        self._silent_until = float("-inf")

    def lagged(self, seconds: float) -> None:
        """A timer ran this many seconds later than it was due."""
        self._record(seconds)
        if seconds < _BAD_LAG_S or self._clock() < self._silent_until:
            return
        self._silent_until = self._clock() + _WARNING_INTERVAL_S
        _log.warning(
            "the event loop stood still for %.1f s, and nothing was sent meanwhile: something in "
            "this program computes or waits without awaiting; asyncio's debug mode names it",
            seconds,
        )
