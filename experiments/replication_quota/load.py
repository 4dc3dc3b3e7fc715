"""A client's records at a steady rate while a block runs."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from experiments.clients import client_config
from experiments.replication_quota.results import Latency
from kafkaclient.perf.clients import KafkaclientClient
from kafkaclient.perf.load import Load, LoadSpec
from kafkaclient.perf.traffic import random_payloads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from kafkaclient.perf.latency import Window
    from kafkaclient.perf.load import LoadOutcome
    from kafkaclient.perf.traffic import KeyValue

__all__ = ["SteadyLoad"]


class SteadyLoad:
    """``async with load.running(settle_s): ...``; afterwards ``latency`` of that block is known."""

    def __init__(self, bootstrap: str, topic: str, *, rate: float, record_size: int) -> None:
        self._client = KafkaclientClient(client_config(bootstrap), topic)
        self._rate = rate
        self._size = record_size
        self._over = False
        self._measured = asyncio.Event()
        self._windows: list[tuple[float, float, float]] = []
        self._began = 0.0
        self.latency: Latency | None = None

    @asynccontextmanager
    async def running(self, settle_s: float) -> AsyncIterator[None]:
        """Send until the block ends; the block, which is measured, begins ``settle_s`` from now.

        Returns when every record has its outcome. Raises what the client's start raises.
        """
        spec = LoadSpec(
            num_records=sys.maxsize,
            rate=self._rate,
            warmup_records=max(1, round(self._rate * settle_s)),
            reporting_interval_s=1.0,
        )
        load = Load(self._client, spec, on_window=self._window, on_steady_state=self._steady_state)
        sending = asyncio.create_task(load.run(self._records()))
        try:
            await _first(self._measured, sending)
            yield
            self._over = True
            self.latency = self._summed_up(await sending)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await self._client.stop(5.0)

    def _records(self) -> Iterator[KeyValue]:
        for record in random_payloads(self._size):
            if self._over:
                return
            yield record

    def _steady_state(self) -> None:
        self._windows.clear()
        self._began = perf_counter()
        self._measured.set()

    def _window(self, window: Window) -> None:
        self._windows.append((perf_counter() - self._began, window.avg_ms, window.max_ms))

    def _summed_up(self, outcome: LoadOutcome) -> Latency:
        summary = outcome.steady_state or outcome.summary
        percentile = summary.distribution.percentile_ms
        return Latency(
            records=summary.records,
            failed=outcome.errors.total(),
            p50_ms=percentile(50),
            p99_ms=percentile(99),
            max_ms=summary.max_ms,
            windows=tuple(self._windows),
        )


async def _first(event: asyncio.Event, sending: asyncio.Task[LoadOutcome]) -> None:
    """Wait for the event, or until sending has ended; raises what ended it."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting, sending}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:
        waiting.cancel()
