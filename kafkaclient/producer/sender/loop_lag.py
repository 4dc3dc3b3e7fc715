"""An event loop that stands still: measured always, told of when it is bad."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LoopLagWarning"]

_log = logging.getLogger(__name__)

_BAD = 1.0
"""Seconds; a blocked event loop of less than this is left to the metric."""
_TOLD_EVERY = 60.0


class LoopLagWarning:
    """Passes measurements on to ``record(seconds)``, and warns of bad ones, at most once a minute
    by ``clock`` (seconds)."""

    __slots__ = ("_clock", "_record", "_silent_until")

    def __init__(self, clock: Callable[[], float], record: Callable[[float], None]) -> None:
        self._clock = clock
        self._record = record
        self._silent_until = float("-inf")

    def lagged(self, seconds: float) -> None:
        """A timer of ours ran this much later than it was due."""
        self._record(seconds)
        if seconds < _BAD or self._clock() < self._silent_until:
            return
        self._silent_until = self._clock() + _TOLD_EVERY
        _log.warning(
            "the event loop stood still for %.1f s, and nothing was sent meanwhile: something in "
            "this program computes or waits without awaiting; asyncio's debug mode names it",
            seconds,
        )
