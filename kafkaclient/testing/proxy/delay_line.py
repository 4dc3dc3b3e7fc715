"""A queue that lets bytes out late, in order: a slow server, a long wire, or both."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DelayLine"]


class DelayLine:
    """Passes chunks on in order: each ``latency`` seconds after it came, and ``spacing`` seconds
    after the one before it left. Without either it passes them on at once."""

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
        self.size = 0
        """Bytes waiting."""

    def push(self, data: bytes, latency: float, spacing: float) -> None:
        if not self._queue and not latency and not spacing and not self._frozen:
            self._deliver(data)
            return
        # With both, the serial server comes first and the network after it.
        self._append(self._clock() + latency + spacing, spacing, data)

    def finish(self) -> None:
        """Nothing more comes: call ``ended`` when what waits has left."""
        self._append(0.0, 0.0, None)

    def freeze(self) -> None:
        """Let nothing out until :meth:`thaw`."""
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
                # Judged again when it fires: uvloop's timers are whole milliseconds.
                self._timer = self._loop.call_later(wait, self._advance)
                return
            self._queue.popleft()
            self._last_left = now
            if data is None:
                self._ended()
                return
            self.size -= len(data)
            self._deliver(data)
