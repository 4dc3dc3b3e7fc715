"""Keeps the clock of asyncio's event loops running in tests that freeze the time.

freezegun replaces ``time.monotonic``, which the loops read, unless a test passes
``real_asyncio=True``. With a clock that stands still no timer of a loop fires: ``asyncio.sleep``
and ``asyncio.timeout`` wait for ever, and so does a record that lingers. time-machine leaves
``time.monotonic`` alone.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _time(_: asyncio.BaseEventLoop, monotonic: Callable[[], float] = time.monotonic) -> float:
    # freezegun replaces the global names of all modules, but no default values.
    return monotonic()


@contextmanager
def keep_real() -> Iterator[None]:
    """In this block, event loops of asyncio tell the real time. uvloop does so anyway."""
    usual = asyncio.BaseEventLoop.time
    asyncio.BaseEventLoop.time = _time  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        asyncio.BaseEventLoop.time = usual  # type: ignore[method-assign]
