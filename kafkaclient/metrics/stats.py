"""Statistics over the last few windows of time (Java: ``SampledStat``, ``Rate``, ``Avg``, ``Max``).

Java keeps one object per statistic. Here one :class:`Windowed` serves them all, so that an event
costs one call whatever is read from it later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Windowed", "Windows"]

_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True)
class Windows:
    """``metrics.num.samples`` windows of ``metrics.sample.window.ms`` each (here in seconds)."""

    length_s: float
    number: int


class _Window:
    __slots__ = ("count", "last", "maximum", "start", "sum")

    def __init__(self, now: float) -> None:
        self.reset(now)

    def reset(self, now: float) -> None:
        self.start = self.last = now
        self.count = 0
        self.sum = 0.0
        self.maximum = -math.inf


class Windowed:
    """Values recorded as they happen; read as totals, rates, average and maximum.

    ``events`` and ``total`` count since the beginning. All else is taken over the windows that
    are not older than all windows together, and the one under way. ``now`` is in seconds, from
    the same monotonic clock in every call.
    """

    __slots__ = ("_current", "_length", "_number", "_windows", "events", "total")

    def __init__(self, windows: Windows) -> None:
        self.events = 0
        self.total = 0.0
        self._length = windows.length_s
        self._number = windows.number
        self._windows: list[_Window] = []
        self._current = 0

    def record(self, value: float, now: float) -> None:
        self.events += 1
        self.total += value
        window = self._windows[self._current] if self._windows else self._first(now)
        if now - window.start >= self._length:
            window = self._advance(now)
        window.count += 1
        window.sum += value
        window.last = now
        window.maximum = max(window.maximum, value)

    def rate(self, now: float) -> float:
        """The sum of values per second."""
        elapsed = self._elapsed(now)
        return sum(window.sum for window in self._windows) / elapsed

    def frequency(self, now: float) -> float:
        """The number of events per second."""
        elapsed = self._elapsed(now)
        return sum(window.count for window in self._windows) / elapsed

    def average(self, now: float) -> float:
        """The mean value; NaN when there was none, as in Java."""
        self._purge(now)
        count = sum(window.count for window in self._windows)
        return sum(window.sum for window in self._windows) / count if count else math.nan

    def maximum(self, now: float) -> float:
        """The largest value; NaN when there was none, as in Java."""
        self._purge(now)
        largest = max((window.maximum for window in self._windows), default=-math.inf)
        return largest if largest > -math.inf else math.nan

    def _first(self, now: float) -> _Window:
        self._windows.append(_Window(now))
        return self._windows[0]

    def _advance(self, now: float) -> _Window:
        # One window more than is asked for: the oldest may still overlap the time looked at.
        self._current = (self._current + 1) % (self._number + 1)
        if self._current == len(self._windows):
            self._windows.append(_Window(now))
        else:
            self._windows[self._current].reset(now)
        return self._windows[self._current]

    def _purge(self, now: float) -> None:
        too_old = self._number * self._length
        for window in self._windows:
            if now - window.last >= too_old:
                window.reset(now)

    def _elapsed(self, now: float) -> float:
        """The time that rates are taken over.

        Never less than all but one of the windows: right after the start the little time that has
        passed would make any rate look enormous.
        """
        self._purge(now)
        if not self._windows:
            self._first(now)
        elapsed = now - min(window.start for window in self._windows)
        missing = self._number - 1 - int(elapsed / self._length)
        if missing > 0:
            elapsed += missing * self._length
        return max(elapsed, _SHORTEST_S)
