"""Statistics over the last few windows of time (Java: ``SampledStat``, ``Rate``, ``Avg``, ``Max``).

Java has one object for each statistic. Here one :class:`Windowed` has all statistics, so that an
event costs one call.
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
        self.sum: float = 0
        self.maximum = -math.inf


_BEFORE_THE_FIRST = _Window(-math.inf)


class Windowed:
    """Values recorded as they happen; read as totals, rates, average and maximum.

    ``events`` and ``total`` count since the beginning. Other statistics are over the current window
    and the windows before it that are not too old. ``now`` is in seconds, from the same monotonic
    clock in every call. Recorded values count in ``parent`` as well.
    """

    __slots__ = ("_index", "_length", "_number", "_parent", "_retired", "_window", "_windows")

    def __init__(self, windows: Windows, parent: Windowed | None = None) -> None:
        self._parent = parent
        self._length = windows.length_s
        self._number = windows.number
        self._windows: list[_Window] = []
        self._window = _BEFORE_THE_FIRST
        self._index = -1
        self._retired = _Window(0.0)

    @property
    def events(self) -> int:
        return self._retired.count + sum(window.count for window in self._windows)

    @property
    def total(self) -> float:
        return self._retired.sum + sum(window.sum for window in self._windows)

    def record(self, value: float, now: float) -> None:
        values: Windowed | None = self
        while values is not None:
            window = values._window
            if now - window.start >= values._length:
                window = values._advance(now)
            window.count += 1
            window.sum += value
            window.last = now
            if value > window.maximum:  # noqa: PLR1730  # four times as fast as max()
                window.maximum = value
            values = values._parent

    def rate(self, now: float) -> float:
        """The sum of values per second."""
        elapsed = self._elapsed(now)
        return sum(window.sum for window in self._windows) / elapsed

    def frequency(self, now: float) -> float:
        """The number of events per second."""
        elapsed = self._elapsed(now)
        return sum(window.count for window in self._windows) / elapsed

    def average(self, now: float) -> float:
        """The mean value; NaN without values, as in Java."""
        self._purge(now)
        count = sum(window.count for window in self._windows)
        return sum(window.sum for window in self._windows) / count if count else math.nan

    def maximum(self, now: float) -> float:
        """The largest value; NaN without values, as in Java."""
        self._purge(now)
        largest = max((window.maximum for window in self._windows), default=-math.inf)
        return largest if largest > -math.inf else math.nan

    def _advance(self, now: float) -> _Window:
        # One window more than configured: the oldest may still overlap the period.
        self._index = (self._index + 1) % (self._number + 1)
        if self._index == len(self._windows):
            self._windows.append(_Window(now))
        else:
            self._retire(self._windows[self._index], now)
        self._window = self._windows[self._index]
        return self._window

    def _purge(self, now: float) -> None:
        too_old = self._number * self._length
        for window in self._windows:
            if now - window.last >= too_old:
                self._retire(window, now)

    def _retire(self, window: _Window, now: float) -> None:
        self._retired.count += window.count
        self._retired.sum += window.sum
        window.reset(now)

    def _elapsed(self, now: float) -> float:
        """The period of rates.

        It is never shorter than all windows but one: shortly after the start, rates would be much
        too high.
        """
        self._purge(now)
        if not self._windows:
            self._advance(now)
        elapsed = now - min(window.start for window in self._windows)
        missing = self._number - 1 - int(elapsed / self._length)
        if missing > 0:
            elapsed += missing * self._length
        return max(elapsed, _SHORTEST_S)
