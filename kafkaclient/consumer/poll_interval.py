"""Whether an application takes records often enough to stay in its group (KIP-62)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_LOOK_S = 1.0
_LOOKS = 10  # per interval


class PollInterval:
    """``mark`` changes with each step of a loop; ``is_awaited``: whether a loop waits for records.
    It is looked at ten times per interval, at least once per second, so that a step costs nothing.
    """

    def __init__(
        self,
        limit_ms: int,
        mark: Callable[[], object],
        is_awaited: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self.limit_s = limit_ms / 1000
        self._mark = mark
        self._is_awaited = is_awaited
        self._clock = clock

    async def expired(self) -> None:
        """Return when no record was asked for in ``max.poll.interval.ms``."""
        mark, since = self._mark(), self._clock()
        while self._clock() - since < self.limit_s:
            await asyncio.sleep(min(_MOST_LOOK_S, self.limit_s / _LOOKS))
            if self._is_awaited() or self._mark() != mark:
                mark, since = self._mark(), self._clock()
