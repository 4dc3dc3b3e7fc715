"""What producer, reader and admin client share: ``async with``, and their end when dropped."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

__all__ = ["Client", "LeftOpen"]

_ending: set[asyncio.Task[object]] = set()
"""Dropped clients that are being ended: event loops keep only weak references to tasks."""


class LeftOpen(NamedTuple):
    """How to end a client that was dropped; ``what`` names it."""

    what: str
    loop: asyncio.AbstractEventLoop
    end: Callable[[], Coroutine[None, None, object]]


class Client:
    """Base of the clients."""

    async def start(self) -> None:
        raise NotImplementedError

    async def _end(self) -> None:
        """What the end of ``async with`` awaits."""
        raise NotImplementedError

    def _left_open(self) -> LeftOpen | None:
        """What the client has open; None if it has nothing open."""
        return None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        left = self._left_open()
        if left is not None:
            _warn(f"unclosed {left.what}", ResourceWarning, source=self)
            # The garbage collector may run in any thread. A closed loop has nothing left to end.
            with contextlib.suppress(RuntimeError):
                left.loop.call_soon_threadsafe(_end_in_background, left)


def _end_in_background(left: LeftOpen) -> None:
    task = left.loop.create_task(left.end(), name="kafkaclient-stop")
    _ending.add(task)
    task.add_done_callback(_ending.discard)
