"""What a Prometheus scrape costs the event loop: 3 brokers in memory, 1,000 partitions in use.

    python -m benchmarks.prometheus_scrape [--partitions 1000] [--scrapes 50] [--limit 1000]

Scrapes come from another thread, over HTTP, while the producer sends at 2,000 records/s. Two times:
``loop`` is the CPU time that a scrape takes in the event loop's thread. ``late`` is how late a
timer of the event loop runs at most while the other thread writes the page, compared with the same
time without scrapes. Milliseconds: median, and largest.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
import urllib.request
from functools import partial

from prometheus_client import CollectorRegistry, start_http_server

from kafkaclient import Producer
from kafkaclient.prometheus import ProducerMetricsCollector
from kafkaclient.testing.fake import FakeCluster

_TICK_S = 0.001


class Measured(ProducerMetricsCollector):
    """Keeps how long the event loop worked for each scrape."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.took_ms: list[float] = []

    def _answer(self, future) -> None:
        start = time.thread_time()
        super()._answer(future)
        self.took_ms.append((time.thread_time() - start) * 1e3)


async def main(partitions: int, scrapes: int, limit: int) -> None:
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
    print(f"{partitions} partitions, {limit} with series; page {size / 1000:.0f} KB")
    print(f"loop: median {statistics.median(metrics.took_ms):.2f}, max {max(metrics.took_ms):.2f}")
    print(f"late: median {statistics.median(late):.2f}, max {max(late):.2f}", end="; ")
    print(f"without scrapes: max {max(without):.2f}")


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--scrapes", type=int, default=50)
    parser.add_argument("--limit", type=int, default=0, help="partitions with series of their own")
    options = parser.parse_args()
    asyncio.run(main(options.partitions, options.scrapes, options.limit))
