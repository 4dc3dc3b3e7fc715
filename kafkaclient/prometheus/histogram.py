"""``Histogram``: counts values in buckets with fixed bounds."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 120.0),
)
"""Bounds for times: from half a millisecond to the default of ``delivery.timeout.ms``."""

BYTES = tuple(float(2**power) for power in (*range(9, 21), 22, 24))
"""Bounds for sizes of batches: from 512 bytes to 16 MiB."""


class Counts(NamedTuple):
    """A histogram at one moment."""

    bounds: tuple[float, ...]
    """The upper bounds of the buckets, ascending. A bucket includes its bound."""
    counts: tuple[int, ...]
    """Values in each bucket; the last one is for values above all bounds."""
    sum: float
    """The sum of all values."""


class Histogram:
    """A value costs a binary search among the bounds. Not safe for several threads."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self) -> Counts:
        return Counts(self._bounds, tuple(self._counts), self._sum)
