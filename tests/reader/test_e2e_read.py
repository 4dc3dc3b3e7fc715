"""What a reader gives: the records that are there, from offset to offset."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from kafkaclient.errors import (
    BrokerConnectionError,
    ConfigError,
    InvalidTopicError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    ReaderStateError,
    RequestTimedOutError,
)
from kafkaclient.reader import FetchedRecord, Reader
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.compression import CompressionType

P0 = TopicPartition("t", 0)


@virtual_time
async def test_all_partitions_from_start_to_end(fake, tools):
    for partition in range(6):
        tools.fill(fake, partition, 4)
    async with tools.reader(fake) as reader:
        starts = await reader.offsets("t", at="earliest")
        ends = await reader.offsets("t", at="latest")
        assert list(starts) == await reader.partitions("t")
        assert set(starts.values()) == {0}
        assert set(ends.values()) == {12}
        reading = reader.read({tp: (starts[tp], ends[tp]) for tp in starts})
        batches = await tools.batches(reading)
        assert reading.positions == ends
    assert sorted((b.partition, b.base_offset, b.next_offset, len(b)) for b in batches) == [
        (partition, 0, 12, 12) for partition in range(6)
    ]
    for batch in batches:
        assert [(r.offset, r.value) for r in batch] == [(n, b"%d" % n) for n in range(12)]
        assert (batch.topic, batch.high_watermark) == ("t", 12)
    # One request to each broker, all at a time.
    assert len(fake.requests_of(ApiKey.FETCH)) == 3
    assert asyncio.get_running_loop().time() < 0.1


@virtual_time
async def test_topics_that_exist_now(fake, tools):
    fake.create_topic("__consumer_offsets", 1)
    async with tools.reader(fake, max_block_ms=2000) as reader:
        listed = (fake.topic_id("t"), tuple(await reader.partitions("t")))
        assert await reader.list_topics(["t", "u", "t"]) == {"t": listed}
        fake.create_topic("u", 2)
        fake.add_partitions("t", 9)
        found = await reader.list_topics()
        assert {name: len(each.partitions) for name, each in found.items()} == {"t": 9, "u": 2}
        assert found["u"].partitions == (("u", 0), ("u", 1))
        assert list(await reader.list_topics(["__consumer_offsets"])) == ["__consumer_offsets"]
        with pytest.raises(InvalidTopicError):
            await reader.list_topics(["t", "no such name"])
        fake.control(ApiKey.METADATA, CLOSE)  # repeated
        assert await reader.list_topics([]) == {}
        for broker in range(3):
            fake.stop_broker(broker)
        began = asyncio.get_running_loop().time()
        with pytest.raises((BrokerConnectionError, RequestTimedOutError)):
            await reader.list_topics()
        assert 2 <= asyncio.get_running_loop().time() - began < 5


@pytest.mark.parametrize("codec", list(CompressionType))
@virtual_time
async def test_every_codec(fake, tools, codec):
    values = [b"value %d " % n * 20 for n in range(50)] + [None]
    fake.append("t", 0, tools.sealed(values, codec=codec))
    async with tools.reader(fake) as reader:
        (batch,) = await tools.batches(reader.read({P0: (0, 51)}, headers=True))
    assert [r.value for r in batch] == values
    first, *_, last = batch
    assert first == FetchedRecord("t", 0, 0, 1000, 0, b"k0", values[0], (("h", b"0"),))
    assert last == FetchedRecord("t", 0, 50, 1050, 0, b"k50", None, (("h", b"50"),))
    assert batch.nbytes > 50 * len(values[0] or b"")


@pytest.mark.parametrize("headers", [True, False])
@virtual_time
async def test_as_arrow(fake, tools, headers):
    pa = pytest.importorskip("pyarrow")
    fake.append("t", 0, tools.sealed([b"a", None, b""]))
    async with tools.reader(fake) as reader:
        (batch,) = await tools.batches(reader.read({P0: (0, 3)}, headers=headers))
    arrow = pa.record_batch(batch)
    arrow.validate(full=True)
    assert arrow.schema == pa.schema(batch) == pa.table(batch).schema
    assert arrow.schema.names[:5] == ["key", "value", "offset", "timestamp", "timestampType"]
    assert pa.table(batch).to_pylist() == arrow.to_pylist()
    rows = arrow.to_pylist()
    assert [row["value"] for row in rows] == [b"a", None, b""]
    assert rows[1]["timestamp"] == datetime(1970, 1, 1, 0, 0, 1, 1000, UTC)
    if headers:
        assert rows[2]["headers"] == [{"key": "h", "value": b"2"}]
        kind = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
        assert arrow.schema.field("headers").type == pa.list_(pa.field("item", kind, False))
    else:
        assert "headers" not in rows[0]
        assert next(iter(batch)).headers == ()


@pytest.mark.parametrize("window", [(0, 1), (1, 2), (2, 7), (5, 12), (11, 12), (4, 4)])
@virtual_time
async def test_within_batches(fake, tools, window):
    """Brokers send whole batches; what was not asked for is not given."""
    tools.fill(fake, 0, 4)
    async with tools.reader(fake) as reader:
        reading = reader.read({P0: window})
        assert await tools.values(reading) == [b"%d" % n for n in range(*window)]


@virtual_time
async def test_an_answer_that_is_cut_off_and_a_batch_larger_than_the_fetch(fake, tools):
    """KIP-74: a batch that is larger than what was asked for comes whole."""
    tools.fill(fake, 0, 20, size=10)
    fake.append("t", 0, tools.sealed([b"x" * 5000]))
    tools.fill(fake, 0, 5)
    async with tools.reader(fake, max_partition_fetch_bytes=700) as reader:
        values = await tools.values(reader.read({P0: (0, 216)}))
    assert values[:200] == [b"%d" % n for n in range(200)]
    assert values[200:202] == [b"x" * 5000, b"201"]
    assert len(values) == 216


@virtual_time
async def test_on_and_on(fake, tools):
    """An end of None, or none at all, waits for new records."""
    tools.fill(fake, 0, 1)
    loop = asyncio.get_running_loop()
    async with tools.reader(fake, fetch_max_wait_ms=100) as reader:
        reading = reader.read({P0: (1, None), TopicPartition("t", 1): 0})
        assert [r.value for r in await anext(reading)] == [b"1", b"2"]
        loop.call_later(5, tools.fill, fake, 1, 1)
        assert [r.value for r in await anext(reading)] == [b"0", b"1", b"2"]
        assert 5 < loop.time() < 5.2
        waiting = asyncio.create_task(anext(reading))
        await asyncio.sleep(1)
        with pytest.raises(ReaderStateError, match="two tasks"):
            await anext(reading)
        reading.close()
        with pytest.raises(ReaderStateError, match="closed before"):
            await waiting
    assert 50 < len(fake.requests_of(ApiKey.FETCH)) < 70 * 3  # no busy waiting


@virtual_time
async def test_gaps_of_compaction(fake, tools):
    tools.fill(fake, 0, 6)
    fake.compact("t", 0, {0, 6, 9})
    async with tools.reader(fake) as reader:
        (batch,) = await tools.batches(reader.read({P0: (1, 11)}))
    assert [r.offset for r in batch] == [3, 4, 5]
    assert batch.next_offset == 11


@virtual_time
async def test_offsets_by_time(fake, tools):
    for n in range(3):
        fake.append("t", 0, tools.sealed([b""] * 2, timestamp=1000 + 100 * n))
    async with tools.reader(fake) as reader:
        for at, offset in ((0, 0), (1001, 1), (1002, 2), (1150, 4), (1201, 5), (1202, None)):
            assert await reader.offsets([P0], at=at) == {P0: offset}
        at = datetime(1970, 1, 1, 0, 0, 1, 100_000, UTC)
        assert await reader.offsets([("t", 0), ("t", 5)], at=at) == {P0: 2, ("t", 5): None}
        before_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)  # -1 ms: Kafka's "latest"
        no_zone = datetime(2020, 1, 1)  # noqa: DTZ001
        for bad in (no_zone, before_1970, -1, 2**63, "first", True, 1.5):
            with pytest.raises(ConfigError, match="give 'earliest'"):
                await reader.offsets("t", at=bad)


@virtual_time
async def test_what_there_is_not(fake, tools):
    async with tools.reader(fake, max_block_ms=2000) as reader:
        with pytest.raises(PartitionOutOfRangeError, match="t-6: the topic has 6 partitions"):
            await reader.offsets([("t", 6)], at="latest")
        with pytest.raises(MetadataTimeoutError, match="allow_auto_create_topics is off"):
            await reader.partitions("nowhere")
        for bad in ((-1, 5), (5, 4)):
            with pytest.raises(ValueError, match="no range of offsets"):
                reader.read({P0: bad})
        with pytest.raises(PartitionOutOfRangeError, match="t-9"):
            await anext(reader.read({P0: 0, ("t", 9): 0}))
        with pytest.raises(MetadataTimeoutError):
            await anext(reader.read({("nowhere", 9): 0}))
        assert await tools.batches(reader.read({})) == []
    assert "nowhere" not in inspect(fake).topics


@virtual_time
async def test_life(fake, tools):
    reader = Reader({"bootstrap.servers": fake.bootstrap, "client.id": "me"}, dialer=fake)
    assert repr(reader) == "<Reader 'me' not started>"
    for call in (reader.partitions("t"), reader.offsets("t", at="latest"), reader.close()):
        if call.__name__ == "close":
            await call
        else:
            with pytest.raises(ReaderStateError, match="not started"):
                await call
    with pytest.raises(ReaderStateError, match="started once"):
        await reader.start()
    reader = Reader(fake.bootstrap, dialer=fake)
    async with reader:
        reading = reader.read({P0: 0})
        waiting = asyncio.create_task(anext(reading))
        await asyncio.sleep(1)
        assert "1 partitions to go" in repr(reading)
    with pytest.raises(ReaderStateError, match="closed before"):
        await waiting
    with pytest.raises(ReaderStateError, match="closed before"):
        await anext(reading)
    with pytest.raises(ReaderStateError, match="the reader is closed"):
        reader.read({})
    await reader.close()


@virtual_time
async def test_reads_do_not_hold_each_other_up(fake, tools):
    """A read that waits for new records has connections of its own, and gives them back."""
    tools.fill(fake, 3, 1)
    async with tools.reader(fake, fetch_max_wait_ms=10_000) as reader:
        async with reader.read({P0: 0}) as waits:
            waiting = asyncio.create_task(anext(waits))
            await asyncio.sleep(1)
            began = asyncio.get_running_loop().time()
            assert await tools.values(reader.read({("t", 3): (0, 3)})) == [b"0", b"1", b"2"]
            assert asyncio.get_running_loop().time() - began < 0.1
        with pytest.raises(ReaderStateError):
            await waiting
        await asyncio.sleep(0.1)
        assert fake.connections(0) <= 1  # that for control calls


@virtual_time
async def test_a_reader_that_is_dropped_warns(fake):
    reader = Reader(fake.bootstrap, dialer=fake)
    await reader.start()
    with pytest.warns(ResourceWarning, match="unclosed reader"):
        del reader
    await asyncio.sleep(0.1)
    assert not any(fake.connections(broker) for broker in range(3))
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("versions", [(4, 4), (4, 11), (4, 12), (4, 13), (0, 17)])
@virtual_time
async def test_older_brokers(tools, versions):
    fake = FakeCluster()
    fake.create_topic("t", 6, 3)
    inspect(fake).versions[ApiKey.FETCH] = versions
    tools.fill(fake, 0, 2)
    async with tools.reader(fake, isolation_level="read_committed") as reader:
        assert len(await tools.values(reader.read({P0: (1, 6)}))) == 5
    (request,) = fake.requests_of(ApiKey.FETCH)
    assert request.version == min(versions[1], 16)


@virtual_time
async def test_a_cluster_without_topic_ids(tools):
    """Metadata below version 10, and yet a Fetch that would name topics by id."""
    fake = FakeCluster(profile="kafka-2.1")
    fake.create_topic("t", 6, 3)
    tools.fill(fake, 0, 2)
    async with tools.reader(fake) as reader:
        assert len(await tools.values(reader.read({P0: (0, 6)}))) == 6
    assert fake.requests_of(ApiKey.FETCH)[0].version == 12


@virtual_time
async def test_what_is_asked_for(fake, tools):
    tools.fill(fake, 0, 1)
    options = {
        "fetch.min.bytes": "5",
        "fetch.max.wait.ms": "70",
        "max.partition.fetch.bytes": "1234",
        "isolation.level": "read_committed",
        "client.rack": "cellar",
    }
    async with tools.reader(fake, **options) as reader:
        await tools.values(reader.read({P0: (0, 3)}))
    (request,) = fake.requests_of(ApiKey.FETCH)
    message = request.message
    assert (message.min_bytes, message.max_wait_ms) == (5, 70)
    assert (message.isolation_level, message.rack_id) == (1, "cellar")
    assert message.topics[0].partitions[0].partition_max_bytes == 1234
    assert message.topics[0].partitions[0].current_leader_epoch == 0
    assert message.max_bytes == 1234


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fetch_max_wait_ms": 30_000}, "must be below request_timeout_ms"),
        ({"request_timeout_ms": 400}, "must be below request_timeout_ms"),
        ({"fetch_max_bytes": 2**31 - 1}, "from 1 to"),
        ({"isolation_level": "serializable"}, "read_uncommitted, read_committed"),
        ({"linger_ms": 5}, "unknown option"),
        ({"group_id": "g"}, "only kafkaclient.Consumer is a member"),
        ({"auto_offset_reset": "earliest"}, "ask Reader.offsets where to begin"),
        ({"fetch_max_byte": 5}, "did you mean fetch_max_bytes"),
    ],
)
def test_options_that_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Reader("localhost:9092", **options)
