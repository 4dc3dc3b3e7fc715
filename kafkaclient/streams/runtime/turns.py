"""Shares the event loop between records: after 10 ms of processing, everything else runs once."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_TURN_S = 0.01


class Turns:
    """The turns of all workers of an instance. However many tasks have records, heartbeats and
    requests wait for at most one turn and one record.

    Ask :attr:`is_over` before each record, and then await :meth:`next`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at = -math.inf
        """When the present pass of the event loop began."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pass_is_scheduled = False

    @property
    def is_over(self) -> bool:
        """Whether the event loop must run before the next record."""
        return self._clock() - self._began_at >= _MAX_TURN_S

    async def next(self) -> None:
        """Wait for a turn. Each pass of the event loop gives one, in the order of the calls."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._pass_is_scheduled:
            self._pass_is_scheduled = True
            loop.call_soon(self._begin_pass, loop)
        await turn

    def _begin_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        self._began_at = self._clock()
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                break
        self._pass_is_scheduled = bool(self._waiting)
        if self._pass_is_scheduled:
            loop.call_soon(self._begin_pass, loop)
