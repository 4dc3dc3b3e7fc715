"""Readers on the fake cluster: started with a fixed seed, and looked over at the end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.reader import Reader
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from kafkaclient.reader import FetchedBatch, FetchedRecord, Reading


class Tools:
    """What the tests do with readers and logs."""

    @asynccontextmanager
    async def reader(self, fake: FakeCluster, **options: Any) -> AsyncIterator[Reader]:
        """Started, and closed at the end, when nothing may be left of it."""
        before = asyncio.all_tasks()
        async with Reader(fake.bootstrap, dialer=fake, rng=Random(7), **options) as reader:
            yield reader
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before | {asyncio.current_task()}
        assert not any(fake.connections(broker) for broker in inspect(fake).brokers)

    def sealed(
        self,
        values: Iterable[bytes | None],
        *,
        codec: int = CompressionType.NONE,
        timestamp: int = 1000,
        producer: tuple[int, int] | None = None,
        transactional: bool = False,
    ) -> bytes:
        """A batch of these values, with keys k0, k1, ..."""
        builder = BatchBuilder(2**26)
        for n, value in enumerate(values):
            builder.append(timestamp + n, b"k%d" % n, value, [("h", b"%d" % n)])
        builder.seal(codec)
        if producer is not None:
            builder.stamp(producer[0], 0, producer[1], transactional)
        return bytes(builder.buffer())

    def fill(self, fake: FakeCluster, partition: int, batches: int, size: int = 3) -> None:
        """Append batches of ``size`` records, each value its offset."""
        for _ in range(batches):
            at = fake.end_offset("t", partition)
            fake.append("t", partition, self.sealed(b"%d" % n for n in range(at, at + size)))

    async def batches(self, reading: Reading) -> list[FetchedBatch]:
        return [batch async for batch in reading]

    async def records(
        self, reading: Reading, into: list[FetchedRecord] | None = None
    ) -> list[FetchedRecord]:
        """All records, also put ``into`` a list, for when it ends with an error."""
        records = [] if into is None else into
        async for batch in reading:
            records += batch
        return records

    async def values(self, reading: Reading) -> list[bytes | None]:
        return [record.value for record in await self.records(reading)]


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def fake() -> FakeCluster:
    """Three brokers, and a topic ``t`` of six partitions in three replicas."""
    cluster = FakeCluster()
    cluster.round_trip_s = 0.001
    cluster.create_topic("t", 6, 3)
    return cluster
