"""Samples of a client's traffic while it runs."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kafkaclient.perf.traffic import Traffic

__all__ = ["Samples", "sampling"]

_INTERVAL_S = 0.05


@dataclass(slots=True)
class Samples:
    """The traffic at each moment, in seconds since the sampling began."""

    seconds: list[float] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)


@asynccontextmanager
async def sampling(
    source: Callable[[], Traffic | None], interval_s: float = _INTERVAL_S
) -> AsyncIterator[Samples]:
    """Samples of ``source()``, taken every ``interval_s`` seconds until the block ends."""
    samples = Samples()
    task = asyncio.create_task(_sample(source, interval_s, samples))
    try:
        yield samples
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _sample(
    source: Callable[[], Traffic | None], interval_s: float, samples: Samples
) -> None:
    start = time.perf_counter()
    while True:
        traffic = source()
        if traffic is not None:
            samples.seconds.append(time.perf_counter() - start)
            samples.traffic.append(traffic)
        await asyncio.sleep(interval_s)
