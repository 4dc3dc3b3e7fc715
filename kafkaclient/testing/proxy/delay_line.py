"""A queue that delays bytes in order, as a slow server or a network with latency does."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class DelayLine:
    """Delivers chunks in order. A chunk leaves ``latency`` seconds after its arrival, and at least
    ``spacing`` seconds after the previous chunk. Without both it is delivered at once."""

    def __init__(
        self,
        clock: Callable[[], float],
        deliver: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._deliver = deliver
        self._ended = ended
        self._queue: deque[tuple[float, float, bytes | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_left = 0.0
        self._frozen = False
        self.size: int = 0
        """The number of waiting bytes."""

    def push(self, data: bytes, latency: float, spacing: float) -> None:
        if not self._queue and not latency and not spacing and not self._frozen:
            self._deliver(data)
            return
        # With both, the server's delay is added to the network's latency.
        self._append(self._clock() + latency + spacing, spacing, data)

    def finish(self) -> None:
        """Call ``ended`` after the last waiting chunk. No more chunks may be added."""
        self._append(0.0, 0.0, None)

    def freeze(self) -> None:
        """Deliver nothing until :meth:`thaw`."""
        self._frozen = True
        self._stop_timer()

    def thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            self._advance()

    def clear(self) -> None:
        self._queue.clear()
        self.size = 0
        self._stop_timer()

    def _append(self, not_before: float, spacing: float, data: bytes | None) -> None:
        self._queue.append((not_before, spacing, data))
        self.size += len(data or b"")
        if self._timer is None:
            self._advance()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _advance(self) -> None:
        self._timer = None
        while self._queue and not self._frozen:
            not_before, spacing, data = self._queue[0]
            now = self._clock()
            wait = max(not_before, self._last_left + spacing) - now
            if wait > 0:
                # Checked again at the timer: uvloop rounds timers to milliseconds.
                self._timer = self._loop.call_later(wait, self._advance)
                return
            self._queue.popleft()
            self._last_left = now
            if data is None:
                self._ended()
                return
            self.size -= len(data)
            self._deliver(data)
