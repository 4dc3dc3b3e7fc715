"""Ends what must not stay half ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


async def to_the_end(work: Coroutine[object, object, None], on_cancel: Callable[[], None]) -> None:
    """Await ``work`` to its end, however often the caller is cancelled. ``on_cancel`` is called for
    each time, and CancelledError raised afterwards. ``work`` needs its own time limits."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    task.result()
    if cancelled is not None:
        raise cancelled
