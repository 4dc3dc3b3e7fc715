"""Cancellations by the application of the asyncio task that processes its records. While
``runner.cancelling()`` is not 0, the asyncio task ``runner`` was cancelled, and not just what it
awaits."""

from __future__ import annotations

import asyncio
from typing import Any


async def take_cancellation(runner: asyncio.Task[Any]) -> None:
    """Raise CancelledError if the current asyncio task has not noticed its cancellation yet. If it
    has caught it, forget it."""
    await asyncio.sleep(0)
    forget_cancellation(runner)


def forget_cancellation(runner: asyncio.Task[Any]) -> None:
    """The current asyncio task goes on after CancelledError."""
    while runner.uncancel():
        pass
