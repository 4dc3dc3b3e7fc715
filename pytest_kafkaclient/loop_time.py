"""Keeps clocks running in tests that freeze the time.

freezegun replaces ``time.monotonic``, which asyncio's event loops read, unless a test passes
``real_asyncio=True``. With a clock that stands still no timer of a loop fires: ``asyncio.sleep``
and ``asyncio.timeout`` wait for ever, and so does a record that lingers. ``as_completed`` of
concurrent.futures does not end either when its time is up. time-machine does the same before 3.0.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import _base
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafkaclient.time_limit import monotonic

if TYPE_CHECKING:
    from collections.abc import Iterator


def _time(_: asyncio.BaseEventLoop) -> float:
    return monotonic()


@contextmanager
def keep_real() -> Iterator[None]:
    """In this block, event loops of asyncio, in all threads, and concurrent.futures tell the real
    time. uvloop does so anyway."""
    futures: Any = _base
    usual = asyncio.BaseEventLoop.time, futures.time
    asyncio.BaseEventLoop.time = _time  # type: ignore[method-assign, assignment]
    futures.time = SimpleNamespace(monotonic=monotonic)  # the only function that it uses
    try:
        yield
    finally:
        asyncio.BaseEventLoop.time, futures.time = usual  # type: ignore[method-assign]
