"""isolation.level: what readers see of transactions (KIP-98)."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition

P0 = TopicPartition("t", 0)
COMMITTED = {"isolation_level": "read_committed"}


class Writer:
    """A transactional producer's view of partition 0."""

    def __init__(self, fake, tools, producer_id: int) -> None:
        self.fake, self.tools, self.producer_id, self.sequence = fake, tools, producer_id, 0

    def write(self, *values: bytes) -> None:
        identity = (self.producer_id, self.sequence)
        batch = self.tools.sealed(values, producer=identity, transactional=True)
        self.fake.append("t", 0, batch)
        self.sequence += len(values)

    def end(self, *, commit: bool) -> None:
        inspect(self.fake).partition("t", 0).log.end_transaction(self.producer_id, 0, commit=commit)


@pytest.fixture
def log(fake, tools):
    """Two producers and one without transactions, interleaved; offsets in the comments."""
    one, two = Writer(fake, tools, 1), Writer(fake, tools, 2)
    one.write(b"a", b"b")  # 0, 1: committed
    two.write(b"no1", b"no2")  # 2, 3: aborted
    fake.append("t", 0, tools.sealed([b"c"]))  # 4
    one.end(commit=True)  # 5
    one.write(b"no3")  # 6: aborted
    two.end(commit=False)  # 7
    two.write(b"d")  # 8: committed
    one.end(commit=False)  # 9
    one.write(b"e")  # 10: committed
    two.end(commit=True)  # 11
    one.end(commit=True)  # 12
    two.write(b"open")  # 13: neither
    fake.append("t", 0, tools.sealed([b"behind"]))  # 14


@virtual_time
async def test_committed_records_only(fake, tools, log):
    async with tools.reader(fake, **COMMITTED) as reader:
        ends = await reader.offsets([P0], at="latest")
        assert ends == {P0: 13}
        batches = await tools.batches(reader.read({P0: (0, 13)}))
    records = [record for batch in batches for record in batch]
    assert [r.value for r in records] == [b"a", b"b", b"c", b"d", b"e"]
    assert [r.offset for r in records] == [0, 1, 4, 8, 10]
    assert batches[-1].next_offset == 13


@virtual_time
async def test_everything(fake, tools, log):
    """Without it, all records; the ends of transactions are none."""
    async with tools.reader(fake) as reader:
        assert await reader.offsets([P0], at="latest") == {P0: 15}
        records = await tools.records(reader.read({P0: (0, 15)}))
    assert [r.offset for r in records] == [0, 1, 2, 3, 4, 6, 8, 10, 13, 14]


@pytest.mark.parametrize("start", range(13))
@virtual_time
async def test_from_anywhere(fake, tools, log, start):
    """Also in the middle of a transaction that was aborted."""
    async with tools.reader(fake, **COMMITTED) as reader:
        records = await tools.records(reader.read({P0: (start, 13)}))
    assert [r.offset for r in records] == [n for n in (0, 1, 4, 8, 10) if n >= start]


@virtual_time
async def test_batch_by_batch(fake, tools, log):
    """Each answer brings the aborted transactions that matter to it."""
    async with tools.reader(fake, max_partition_fetch_bytes=1, **COMMITTED) as reader:
        records = await tools.records(reader.read({P0: (0, 13)}))
    assert [r.offset for r in records] == [0, 1, 4, 8, 10]


@pytest.mark.parametrize("fetch_max_bytes", [1, 300, 100_000])
@virtual_time
async def test_responses_without_visible_records_use_up_no_room_for_good(
    fake, tools, fetch_max_bytes
):
    """They fill the broker's share of fetch.max.bytes, and nothing is in flight meanwhile."""
    writer = Writer(fake, tools, 1)
    for commit in (False, False, True):
        for _ in range(5):
            writer.write(b"x" * 100)
        writer.end(commit=commit)
    fake.append("t", 0, tools.sealed([b"last"]))
    async with tools.reader(fake, fetch_max_bytes=fetch_max_bytes, **COMMITTED) as reader:
        end = (await reader.offsets([P0], at="latest"))[P0]
        async with asyncio.timeout(60):
            records = await tools.records(reader.read({P0: (0, end)}))
    assert [r.value for r in records] == [b"x" * 100] * 5 + [b"last"]


@virtual_time
async def test_what_is_open_is_waited_for(fake, tools, log):
    async with tools.reader(fake, **COMMITTED) as reader:
        reading = reader.read({P0: (10, 15)})
        assert [r.offset for r in await anext(reading)] == [10]
        inspect(fake).partition("t", 0).log.end_transaction(2, 0, commit=True)
        assert [r.value for r in await anext(reading)] == [b"open", b"behind"]


@virtual_time
async def test_a_transaction_whose_records_are_all_gone(fake, tools, log):
    """Nothing is given, and the read ends."""
    async with tools.reader(fake, **COMMITTED) as reader:
        reading = reader.read({P0: (6, 8)})
        assert await tools.records(reading) == []
        assert reading.positions == {P0: 8}


@virtual_time
async def test_by_time_nothing_beyond_the_last_stable_offset(fake, tools, log):
    async with tools.reader(fake, **COMMITTED) as reader:
        assert await reader.offsets([P0], at=1001) == {P0: 1}
        assert await reader.offsets([P0], at=1002) == {P0: None}
