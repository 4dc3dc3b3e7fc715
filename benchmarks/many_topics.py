"""What 1,000 topics cost the producer: ``python -m benchmarks.many_topics [--out FILE]``.

1,000 topics with 10 partitions each on 50 in-memory brokers get 200,000 records of 100 bytes a
second, every other one with a key, beside one topic with as many batches a second of the same size.
Then all leaders of the 10,000 partitions move at once, while the records go on.

Time is virtual, so the rates hold on any machine. All CPU times are without the brokers' share,
which runs in the same process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from itertools import islice
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import write_results
from kafkaclient import Producer
from kafkaclient.testing.clock import run_virtual
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.fake.connection import FakeConnection

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CallbackCpu", "LoadResult", "main", "measure_load", "measure_move"]

BROKERS = 50
TOPICS = 1000
PARTITIONS = 10
RATE = 200_000  # records per second
TICK_S = 0.0002  # records are sent this often
VALUE = bytes(100)
LINGER_MS = 1000
WARM_S = 1.2  # seconds of load before it is measured: a linger time
MOVE_S = 0.2  # seconds of load while the leaders move


class LoadResult(NamedTuple):
    """The cost of a load, in the client."""

    cpu_s: float
    batches: int
    records: int

    @property
    def us_per_batch(self) -> float:
        return 1e6 * self.cpu_s / self.batches


class CallbackCpu:
    """CPU time of the event loop's callbacks, in seconds, without what brokers do in them, and
    without the garbage collector, which would mostly look at the brokers' objects."""

    def __init__(self) -> None:
        self.total = self.longest = 0.0
        self._active = False
        self._brokers = 0.0

    def __enter__(self) -> CallbackCpu:
        gc.disable()
        self._active = True
        self._run, self._received = asyncio.Handle._run, FakeConnection.data_received
        run, received = self._run, self._received

        def data_received(connection: FakeConnection, data: bytes) -> None:
            began = thread_time()
            received(connection, data)
            self._brokers += thread_time() - began

        def run_timed(handle: asyncio.Handle) -> None:
            began, brokers = thread_time(), self._brokers
            run(handle)
            spent = thread_time() - began - (self._brokers - brokers)
            if self._active:  # else the callback has left the block, and gone on
                self.total += spent
                self.longest = max(self.longest, spent)

        asyncio.Handle._run = run_timed  # type: ignore[method-assign]
        FakeConnection.data_received = data_received  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        gc.enable()
        self._active = False
        asyncio.Handle._run = self._run  # type: ignore[method-assign]
        FakeConnection.data_received = self._received  # type: ignore[method-assign]


def _cluster(topics: int) -> tuple[FakeCluster, list[str]]:
    fake = FakeCluster(BROKERS)
    fake.round_trip_s = 0.001
    names = [f"topic-{number}" for number in range(topics)]
    for number, name in enumerate(names):
        leaders = [((number + partition) % BROKERS,) for partition in range(PARTITIONS)]
        fake.create_topic(name, assignments=leaders)
    return fake, names


def _records(topics: list[str]) -> Iterator[tuple[str, bytes | None]]:
    """Topics in turn, every other record of a topic with a key."""
    number = 0
    while True:
        for topic in topics:
            keyed = number % 2
            number += 1
            yield topic, b"%08d" % (number * 7919) if keyed else None
        number += 1 - len(topics) % 2


async def _send(
    producer: Producer, records: Iterator[tuple[str, bytes | None]], seconds: float
) -> None:
    """Send records at the rate for a number of seconds."""
    for _ in range(round(seconds / TICK_S)):
        for topic, key in islice(records, round(RATE * TICK_S)):
            producer.send_nowait(topic, VALUE, key)
        await asyncio.sleep(TICK_S)


async def _warm(producer: Producer, topics: list[str]) -> None:
    """Each partition gets a record. What there is then is not looked at by the garbage collector
    any more: most of it are the brokers' objects."""
    for start in range(0, len(topics), 100):
        for topic in topics[start : start + 100]:
            await producer.partitions_for(topic)
            for partition in range(PARTITIONS):
                await producer.send(topic, VALUE, partition=partition)
    await producer.flush()
    gc.collect()
    gc.freeze()


def _sent(producer: Producer) -> tuple[int, int]:
    """Records and batches that were sent."""
    core: Any = producer._core
    queues = [q for t in core.accumulator.topics.values() for q in t.queues.values()]
    return sum(q.records_sent for q in queues), sum(q.batches_bound for q in queues)


def measure_load(topics: int, seconds: float, **options: Any) -> LoadResult:
    """The load on this number of topics, for this many (virtual) seconds after a linger time."""

    async def load() -> LoadResult:
        fake, names = _cluster(topics)
        async with Producer(
            fake.bootstrap, dialer=fake, linger_ms=LINGER_MS, buffer_memory=2**30, **options
        ) as producer:
            await _warm(producer, names)
            records = _records(names)
            await _send(producer, records, WARM_S)
            before = _sent(producer)
            with CallbackCpu() as meter:
                await _send(producer, records, seconds)
            after = _sent(producer)
        return LoadResult(meter.total, after[1] - before[1], after[0] - before[0])

    return run_virtual(load())


def measure_move() -> tuple[float, float]:
    """The longest callback, in milliseconds: with the load alone, and while all leaders move."""

    async def move() -> tuple[float, float]:
        fake, names = _cluster(TOPICS)
        async with Producer(
            fake.bootstrap, dialer=fake, linger_ms=LINGER_MS, buffer_memory=2**30
        ) as producer:
            await _warm(producer, names)
            records = _records(names)
            await _send(producer, records, WARM_S)
            with CallbackCpu() as alone:
                await _send(producer, records, MOVE_S)
            for number, name in enumerate(names):
                for partition in range(PARTITIONS):
                    fake.move_leader(name, partition, (number + partition + 1) % BROKERS)
            gc.collect()
            gc.freeze()
            with CallbackCpu() as moved:
                refresh = asyncio.ensure_future(producer.refresh_metadata())
                await _send(producer, records, MOVE_S)
                await refresh
        return 1000 * alone.longest, 1000 * moved.longest

    return run_virtual(move())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1, help="virtual seconds of load")
    parser.add_argument("--out", type=Path, help="a file for the results")
    given = parser.parse_args()
    many = measure_load(TOPICS, given.seconds)
    one = measure_load(1, given.seconds, batch_size=many.records // many.batches * 112 + 61)
    alone_ms, moved_ms = measure_move()
    found = {
        "loads": [
            {
                "topics": topics,
                "batches_per_s": round(load.batches / given.seconds),
                "records_per_batch": round(load.records / load.batches, 1),
                "us_per_batch": round(load.us_per_batch, 1),
                "cores": round(load.cpu_s / given.seconds, 2),
            }
            for topics, load in ((TOPICS, many), (1, one))
        ],
        "longest_callback_ms": {"load": round(alone_ms, 1), "leaders move": round(moved_ms, 1)},
    }
    write_results(found, given.out)


if __name__ == "__main__":
    main()
