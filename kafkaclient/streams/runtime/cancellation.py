"""Cancellations by the application of the asyncio task that processes its records."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Whether the current asyncio task was cancelled, and not just what it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def take_cancellation() -> None:
    """Raise CancelledError if the current task has not noticed its cancellation yet. If it has
    caught it, forget it."""
    await asyncio.sleep(0)
    forget_cancellation()


def forget_cancellation() -> None:
    """The current task goes on after CancelledError."""
    task = asyncio.current_task()
    while task is not None and task.uncancel():
        pass
