"""How a loop that never waits shares its event loop, as an application would."""

from __future__ import annotations

import asyncio
from time import perf_counter

__all__ = ["Turns"]

_TURN_S = 0.001


class Turns:
    """Ends the caller's turn of the event loop when it has had it for a millisecond."""

    def __init__(self) -> None:
        self._until = perf_counter() + _TURN_S

    async def end_when_long(self) -> None:
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + _TURN_S

    async def wait(self, seconds: float) -> None:
        """There is no room: come back later."""
        await asyncio.sleep(seconds)
        self._until = perf_counter() + _TURN_S
