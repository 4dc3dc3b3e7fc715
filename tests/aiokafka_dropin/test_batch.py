"""aiokafka's BatchBuilder: sizes and limits as aiokafka's own builder, one batch on the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import pytest
from aiokafka import errors as theirs

from kafkaclient import errors as ours
from kafkaclient.aiokafka import AIOKafkaProducer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.aiokafka_dropin.support import dropin


def cluster() -> FakeCluster:
    fake = FakeCluster(1)
    fake.create_topic("t", 2)
    return fake


RECORDS: list[dict[str, Any]] = [
    {"key": b"k", "value": b"v", "timestamp": 1_000},
    {"key": None, "value": b"v" * 100, "timestamp": 1_500},
    {"key": b"k", "value": None, "timestamp": 900, "headers": [("h", b"1"), ("h", None)]},
    *[{"key": None, "value": b"hello", "timestamp": 2_000} for _ in range(100)],
]


@virtual_time
async def test_sizes_and_the_limit_are_aiokafkas() -> None:
    theirs_producer = aiokafka.AIOKafkaProducer(max_batch_size=400)
    async with dropin(cluster(), max_batch_size=400) as producer:
        ours, other = producer.create_batch(), theirs_producer.create_batch()
        for record in RECORDS:
            mine, its = ours.append(**record), other.append(**record)
            assert (mine is None) == (its is None)
            if mine is not None:
                found = (mine.offset, mine.size, mine.timestamp, mine.crc)
                assert found == (its.offset, its.size, its.timestamp, its.crc)
            assert ours.size() == other.size()
            assert ours.record_count() == other.record_count()
            assert ours.closed() == other.closed()
        assert ours.closed()
        assert 3 < ours.record_count() < len(RECORDS)
    await theirs_producer.stop()


@virtual_time
async def test_one_batch_on_the_wire() -> None:
    fake = cluster()
    async with dropin(fake, linger_ms=50) as producer:
        single = await producer.send("t", b"before", partition=1)
        batch = producer.create_batch()
        for record in RECORDS[:3]:
            batch.append(**record)
        future = await producer.send_batch(batch, "t", partition=1)
        assert asyncio.isfuture(future)
        await producer.send("t", b"after", partition=1)
        first = await future
        assert (first.topic, first.partition, first.offset, first.timestamp) == ("t", 1, 1, 1_000)
        assert (await single).offset == 0
    log = fake.log("t", 1)
    assert [r.value for r in log] == [b"before", b"v", b"v" * 100, None, b"after"]
    assert [r.timestamp for r in log][1:4] == [1_000, 1_500, 900]
    assert log[3].headers == (("h", b"1"), ("h", None))
    assert [header.record_count for header in fake.batches("t", 1)] == [1, 3, 1]


@virtual_time
async def test_a_partition_is_chosen() -> None:
    """FastStream passes None."""
    fake = cluster()
    async with dropin(fake) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=b"v", timestamp=None, headers=[])
        metadata = await (await producer.send_batch(batch, "t", partition=None))
    assert fake.log("t", metadata.partition)[0].value == b"v"


@virtual_time
async def test_a_closed_batch_takes_no_more() -> None:
    async with dropin(cluster()) as producer:
        batch = producer.create_batch()
        assert not batch.closed()
        batch.close()
        batch.close()
        assert batch.closed()
        assert batch.append(key=None, value=b"v", timestamp=None) is None
        assert batch.record_count() == 0


@virtual_time
async def test_the_first_record_fits_always() -> None:
    fake = cluster()
    async with dropin(fake, max_batch_size=100) as producer:
        batch = producer.create_batch()
        assert batch.append(key=None, value=b"v" * 500, timestamp=None) is not None
        assert batch.append(key=None, value=b"v", timestamp=None) is None
        await (await producer.send_batch(batch, "t", partition=0))
    assert len(fake.log("t", 0)) == 1


@virtual_time
async def test_serializers() -> None:
    fake = cluster()
    async with dropin(fake, key_serializer=repr_bytes, value_serializer=repr_bytes) as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=5, timestamp=None)
        await (await producer.send_batch(batch, "t", partition=0))
    assert [(r.key, r.value) for r in fake.log("t", 0)] == [(b"None", b"5")]


@virtual_time
async def test_an_empty_batch_is_not_sent() -> None:
    """Its future is done: its result is None, as in aiokafka."""
    fake = cluster()
    async with dropin(fake) as producer:
        future = await producer.send_batch(producer.create_batch(), "t", partition=0)
        assert await future is None
        with pytest.raises(AssertionError, match="Unrecognized partition"):
            await producer.send_batch(producer.create_batch(), "t", partition=2)
    with pytest.raises(theirs.ProducerClosed):
        await producer.send_batch(producer.create_batch(), "t", partition=0)
    async with dropin(fake, transactional_id="tx") as producer:
        with pytest.raises(theirs.IllegalOperation):
            await producer.send_batch(producer.create_batch(), "t", partition=0)
    assert not fake.log("t", 0)


@virtual_time
async def test_an_empty_batch_raises_the_errors_of_a_full_one() -> None:
    fake = FakeCluster(1, auto_create_topics=False)
    expected = {
        "unknown": (theirs.UnknownTopicOrPartitionError, ours.MetadataTimeoutError),
        "not a name": (theirs.InvalidTopicError, ours.InvalidTopicError),
    }
    async with dropin(fake, request_timeout_ms=300) as producer:
        for topic, (their_kind, our_kind) in expected.items():
            for record_count in (0, 1):
                batch = producer.create_batch()
                for _ in range(record_count):
                    batch.append(key=None, value=b"v", timestamp=None)
                with pytest.raises(their_kind) as caught:
                    await producer.send_batch(batch, topic, partition=0)
                assert isinstance(caught.value, our_kind)
    producer = AIOKafkaProducer(bootstrap_servers=fake.bootstrap, dialer=fake)
    with pytest.raises(theirs.IllegalOperation):
        await producer.send_batch(producer.create_batch(), "t", partition=0)
    await producer.stop()


@virtual_time
async def test_a_serializer_that_closes_its_batch() -> None:
    def close(value: bytes) -> bytes:
        batch.close()
        return value

    async with dropin(cluster(), value_serializer=close) as producer:
        batch = producer.create_batch()
        assert batch.append(key=None, value=b"v", timestamp=None) is None
        assert batch.record_count() == 0


@virtual_time
async def test_the_clock_of_a_batch_is_the_clock_of_send() -> None:
    fake = cluster()
    async with dropin(fake, wall_clock=lambda: 12.5) as producer:
        batch = producer.create_batch()
        appended = batch.append(key=None, value=b"v", timestamp=None)
        assert appended is not None
        assert appended.timestamp == 12_500
        await (await producer.send_batch(batch, "t", partition=0))
    assert fake.log("t", 0)[0].timestamp == 12_500


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"timestamp": "1"}, TypeError),
        ({"timestamp": float("inf")}, ValueError),
        ({"timestamp": float("nan")}, ValueError),
        ({"timestamp": -1}, ValueError),
        ({"value": "text"}, TypeError),
        ({"key": 5}, TypeError),
        ({"headers": [("h", "text")]}, TypeError),
        ({"value": b"v" * 1_048_576}, theirs.MessageSizeTooLargeError),
    ],
    ids=lambda value: str(value)[:40],
)
@virtual_time
async def test_a_record_that_is_refused(arguments: Any, kind: type[Exception]) -> None:
    async with dropin(cluster()) as producer:
        batch = producer.create_batch()
        with pytest.raises(kind):
            batch.append(**{"key": None, "value": b"v", "timestamp": None, **arguments})
        assert batch.record_count() == 0
        assert batch.append(key=None, value=b"v", timestamp=None) is not None


@virtual_time
async def test_all_or_nothing() -> None:
    fake = cluster()
    async with dropin(fake) as producer:
        fake.fail_produce("t", 0, 87, record_errors=[(1, "bad")])
        batch = producer.create_batch()
        for _ in range(3):
            batch.append(key=None, value=b"v", timestamp=None)
        with pytest.raises(theirs.KafkaError):
            await (await producer.send_batch(batch, "t", partition=0))
        for partition, error in ((-1, AssertionError), (7, AssertionError)):
            other = producer.create_batch()
            other.append(key=None, value=b"v", timestamp=None)
            with pytest.raises(error):
                await producer.send_batch(other, "t", partition=partition)
        with pytest.raises(theirs.IllegalOperation):  # a batch is sent once
            await producer.send_batch(batch, "t", partition=0)
    assert not fake.log("t", 0)


def repr_bytes(item: Any) -> bytes:
    return repr(item).encode()
