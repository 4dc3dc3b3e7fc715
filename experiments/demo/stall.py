"""Runs in which broker 0 takes nothing for a while: how do the rows for the others fare?"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from experiments.clients import OURS
from kafkaclient.perf.clients import KafkaclientClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from experiments.demo.sampler import Samples
    from kafkaclient.hooks import Hooks
    from kafkaclient.perf.traffic import KeyValue
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["ManyTasks", "Stall", "rate_to_others", "stalling"]

_LONGEST_S = 10.0
_SETTLE_S = 1.0  # after the start, and after the beginning of the stall
_ROUND = 1024


@dataclass(frozen=True, slots=True)
class Stall:
    """A stall of broker 0 in the middle third of a run, at most ten seconds."""

    seconds: float
    rate: float
    row_bytes: float

    @classmethod
    def of(cls, rate: float, row_bytes: float, rows: int) -> Stall:
        return cls(min(_LONGEST_S, rows / rate / 3), rate, row_bytes)

    @property
    def rows(self) -> int:
        """The rows of a run."""
        return round(3 * self.seconds * self.rate)

    def options(self, client: str) -> dict[str, str]:
        """A bound of memory that half of the rows fill in a third of the stall.

        Other options are such that all clients put a key into the same partition.
        """
        nbytes = int(self.seconds / 3 * self.rate / 2 * self.row_bytes)
        if client == OURS:
            return {"buffer.memory": str(nbytes)}
        kilobytes = str(max(1, nbytes // _ROUND))
        return {"queue.buffering.max.kbytes": kilobytes, "partitioner": "murmur2_random"}


@asynccontextmanager
async def stalling(cluster: ClusterHandle, broker: int, stall: Stall) -> AsyncIterator[None]:
    """The broker's proxy forwards nothing in the second third of the block's run."""
    proxy = cluster.proxy(broker)

    async def work() -> None:
        await asyncio.sleep(stall.seconds)
        await proxy.stall()
        await asyncio.sleep(stall.seconds)
        await proxy.resume()

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await proxy.resume()


def rate_to_others(samples: Samples, broker: int, stall: Stall) -> tuple[float, float]:
    """Rows per second to the other brokers before the stall, and during it."""
    settle = min(_SETTLE_S, stall.seconds / 4)
    before = (settle, stall.seconds)
    during = (stall.seconds + settle, 2 * stall.seconds)
    sent = [
        (at, sum(part.records_sent for part in traffic.partitions if part.leader != broker))
        for at, traffic in zip(samples.seconds, samples.traffic, strict=True)
    ]

    def rate(since: float, until: float) -> float:
        steps = [(b - a, n - m) for (a, m), (b, n) in pairwise(sent) if since <= a and b <= until]
        seconds = sum(step for step, _rows in steps)
        return sum(rows for _step, rows in steps) / seconds if seconds else 0.0

    return rate(*before), rate(*during)


class ManyTasks(KafkaclientClient):
    """Rows that have no room wait in tasks of their own, as the requests to a web service do."""

    def __init__(self, config: Mapping[str, str], topic: str, metrics: Hooks | None = None) -> None:
        super().__init__(config, topic, metrics=metrics)
        self._waiting: set[asyncio.Task[int]] = set()

    async def send(self, records: list[KeyValue], started: float) -> int:
        taken = self._send_nowait(records, started)
        if taken:
            return taken
        task = asyncio.create_task(super().send(records[:1], started))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        await asyncio.sleep(0)  # the row waits before the next one is handed over
        return 1

    async def flush(self) -> None:
        while waiting := tuple(self._waiting):
            await asyncio.gather(*waiting)
        await super().flush()
