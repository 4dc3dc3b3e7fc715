"""Consumers on the fake cluster."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.consumer import Consumer
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kafkaclient.types import TopicPartition


class Tools:
    """What the tests do with consumers and logs."""

    def __init__(self) -> None:
        self._open = 0
        self._before: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def consumer(self, fake: FakeCluster, **options: Any) -> AsyncIterator[Consumer]:
        """Started, and closed at the end, when nothing may be left of it."""
        if not self._open:
            self._before = asyncio.all_tasks()
        self._open += 1
        options = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 300, **options}
        async with Consumer(fake.bootstrap, dialer=fake, rng=Random(7), **options) as consumer:
            yield consumer
        self._open -= 1
        if not self._open:
            await asyncio.sleep(0.001)  # the cancelled requests, and loops of the tests, end
            left = asyncio.all_tasks() - self._before - {asyncio.current_task()}
            assert not left

    def fill(self, fake: FakeCluster, partition: int, records: int, topic: str = "t") -> None:
        """Append records, each value its offset, in batches of three."""
        end = fake.end_offset(topic, partition) + records
        while (at := fake.end_offset(topic, partition)) < end:
            fake.append(topic, partition, self.batch(at, min(at + 3, end)))

    def batch(self, start: int, end: int) -> bytes:
        builder = BatchBuilder(2**20)
        for offset in range(start, end):
            builder.append(1000 + offset, b"k%d" % offset, b"%d" % offset, [("h", b"x")])
        builder.seal(0)
        return bytes(builder.buffer())

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)

    def committed(self, fake: FakeCluster, where: TopicPartition, group: str = "g") -> int | None:
        return fake.committed_offset(group, *where)


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def fake() -> FakeCluster:
    """Two brokers, and a topic ``t`` of four partitions."""
    cluster = FakeCluster(2)
    cluster.round_trip_s = 0.001
    cluster.create_topic("t", 4)
    return cluster
