"""What a Prometheus scrape costs the event loop: 3 brokers in memory, 1,000 partitions in use.

    python -m benchmarks.prometheus_scrape [--partitions 1000] [--scrapes 50] [--limits 0,1000]
                                           [--out FILE]

Scrapes come from another thread, over HTTP, while the producer sends at 2,000 records/s. Two times:
``loop`` is the CPU time that a scrape takes in the event loop's thread. ``late`` is how late a
timer of the event loop runs at most while the other thread writes the page, ``quiet`` the same
without scrapes. Milliseconds: median, and largest.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server

from benchmarks import write_results
from kafkaclient import Producer
from kafkaclient.prometheus import ProducerMetricsCollector
from kafkaclient.testing.fake import FakeCluster

_TICK_S = 0.001


class Measured(ProducerMetricsCollector):
    """Keeps how long the event loop worked for each scrape."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.took_ms: list[float] = []

    def _read(self) -> Any:
        start = time.thread_time()
        found = super()._read()
        self.took_ms.append((time.thread_time() - start) * 1e3)
        return found


async def measure(partitions: int, scrapes: int, limit: int) -> dict[str, Any]:
    fake = FakeCluster(3)
    fake.create_topic("t", partitions)
    registry = CollectorRegistry()
    metrics = Measured(registry, partition_limit=limit)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    async with Producer(fake.bootstrap, dialer=fake, hooks=metrics) as producer:
        await asyncio.gather(
            *[await producer.send("t", b"v" * 100, partition=n) for n in range(partitions)]
        )
        gc.collect()
        gc.freeze()  # the brokers' memory is in no producer's process
        load = asyncio.create_task(_load(producer, partitions))
        without = await _lateness(asyncio.sleep(0.1 * scrapes))
        fetched = partial(asyncio.to_thread, _scrape, url)
        late = []
        for _ in range(scrapes):
            late.append(max(await _lateness(fetched())))
            await asyncio.sleep(0.05)
        size = len(await fetched())
        load.cancel()
    server.shutdown()
    server.server_close()
    thread.join()
    return {
        "partitions": partitions,
        "limit": limit,
        "page_kb": round(size / 1000),
        "loop_median_ms": round(statistics.median(metrics.took_ms), 2),
        "loop_most_ms": round(max(metrics.took_ms), 2),
        "late_median_ms": round(statistics.median(late), 2),
        "late_most_ms": round(max(late), 2),
        "quiet_most_ms": round(max(without), 2),
    }


async def _load(producer: Producer, partitions: int) -> None:
    number = 0
    while True:
        for _ in range(20):
            producer.send_nowait("t", b"v" * 100, partition=number % partitions)
            number += 7
        await asyncio.sleep(0.01)


async def _lateness(until) -> list[float]:
    """How late a timer ran, in milliseconds, again and again until ``until`` has ended."""
    waited, late = asyncio.ensure_future(until), []
    while not waited.done():
        start = time.perf_counter()
        await asyncio.sleep(_TICK_S)
        late.append((time.perf_counter() - start - _TICK_S) * 1e3)
    await waited
    return late


def _scrape(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - http on this machine
        return answer.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--scrapes", type=int, default=50)
    parser.add_argument("--limits", default="0,1000", help="partitions with series of their own")
    parser.add_argument("--out", type=Path, help="a file for the results")
    given = parser.parse_args()
    limits = map(int, given.limits.split(","))
    found = [asyncio.run(measure(given.partitions, given.scrapes, limit)) for limit in limits]
    write_results(found, given.out)


if __name__ == "__main__":
    main()
