"""fetch.max.bytes, back-pressure and turns."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.records import BatchBuilder

LARGEST = 3000
"""A little more than a batch has here."""


@pytest.fixture
def full(tools):
    """Two brokers, six partitions of 200 batches of some 2.6 KB."""
    fake = FakeCluster(brokers=2)
    fake.round_trip_s = 0.001
    fake.create_topic("t", 6, 1)
    for partition in range(6):
        for _ in range(200):
            fake.append("t", partition, tools.sealed([b"x" * 250] * 10))
    return fake


def all_of_it(partitions=range(6)):
    return {TopicPartition("t", n): (0, 2000) for n in partitions}


@pytest.mark.parametrize("limit", [1, 20_000, 100_000])
@virtual_time
async def test_no_more_is_fetched_than_fetch_max_bytes(full, tools, limit):
    """But for one batch per broker that is larger than the broker's share (KIP-74)."""
    options = {"fetch_max_bytes": limit, "max_partition_fetch_bytes": 10_000}
    records, most = 0, 0
    async with tools.reader(full, **options) as reader:
        reading = reader.read(all_of_it())
        async for batch in reading:
            records += len(batch)
            most = max(most, reading._fetches.held)
            await asyncio.sleep(0.01)  # whatever is under way arrives
            most = max(most, reading._fetches.held)
    assert records == 12_000
    assert min(limit, 30_000) / 2 <= most <= limit + 2 * LARGEST
    assert reading._fetches.held == 0


@virtual_time
async def test_who_takes_nothing_gets_no_more(full, tools):
    async with tools.reader(full, max_partition_fetch_bytes=10_000) as reader:
        reading = reader.read(all_of_it())
        await anext(reading)
        await asyncio.sleep(1)
        asked, held = len(full.requests_of(ApiKey.FETCH)), reading._fetches.held
        await asyncio.sleep(600)
        assert len(full.requests_of(ApiKey.FETCH)) == asked <= 4
        assert reading._fetches.held == held < 6 * 2 * 10_000 + 2 * LARGEST
        rest = [batch async for batch in reading]
    assert sum(map(len, rest)) == 12_000 - 30


@virtual_time
async def test_partitions_take_turns(full, tools):
    """Whatever a broker's answer holds, and however its partitions are listed."""
    options = {"fetch_max_bytes": 12_000, "max_partition_fetch_bytes": 3_000}
    async with tools.reader(full, **options) as reader:
        counts = dict.fromkeys(range(6), 0)
        async for batch in reader.read(all_of_it()):
            counts[batch.partition] += len(batch)
            assert max(counts.values()) - min(counts.values()) <= 80, counts
    assert set(counts.values()) == {2000}


@virtual_time
async def test_fetching_runs_ahead_of_who_takes(full, tools):
    """The next answer is there when the batch before it has been worked on."""
    full.round_trip_s = 0.05
    async with tools.reader(full, max_partition_fetch_bytes=30_000) as reader:
        reading = reader.read(all_of_it([0]))
        await anext(reading)
        began = asyncio.get_running_loop().time()
        async for _ in reading:
            await asyncio.sleep(0.06)
        batches = len(full.requests_of(ApiKey.FETCH))
        assert asyncio.get_running_loop().time() - began < 0.06 * batches + 0.1


@virtual_time
async def test_a_quiet_partition_does_not_hold_up_a_busy_one(tools):
    """They share a broker, which waits for fetch.max.wait.ms when there is nothing new."""
    fake = FakeCluster(brokers=1)
    fake.round_trip_s = 0.001
    fake.create_topic("t", 2, 1)
    for _ in range(100):
        fake.append("t", 0, tools.sealed([b"x" * 250] * 10))
    async with tools.reader(fake, max_partition_fetch_bytes=6000) as reader:
        reading = reader.read({TopicPartition("t", 1): 0, TopicPartition("t", 0): 0})
        records = 0
        while records < 1000:
            records += len(await anext(reading))
            await asyncio.sleep(0.001)
        assert asyncio.get_running_loop().time() < 1
        fake.append("t", 1, tools.sealed([b"at last"]))
        assert [r.value for r in await anext(reading)] == [b"at last"]


@virtual_time
async def test_a_batch_of_columns_is_about_as_large_as_a_fetch(full, tools):
    """Also when what was fetched gets larger by decompression."""
    values = [b"x" * 1000] * 100
    for _ in range(50):
        full.append("t", 0, tools.sealed(values, codec=4))
    async with tools.reader(full, max_partition_fetch_bytes=200_000) as reader:
        batches = await tools.batches(reader.read({("t", 0): (2000, 7000)}))
    assert sum(map(len, batches)) == 5000
    assert {len(batch) for batch in batches} == {200}


@virtual_time
async def test_empty_records_count(full, tools):
    """A few bytes can be many of them, once they are decompressed."""
    builder = BatchBuilder(2**26)
    for _ in range(5000):
        builder.append(0, None, None)
    builder.seal(4)
    for _ in range(20):
        full.append("t", 0, bytes(builder.buffer()))
    async with tools.reader(full, max_partition_fetch_bytes=70_000) as reader:
        batches = await tools.batches(reader.read({("t", 0): (2000, 102_000)}))
    assert {len(batch) for batch in batches} == {10_000}
