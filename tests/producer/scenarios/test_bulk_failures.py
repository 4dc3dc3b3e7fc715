"""Records in bulk that fail, or whose producer or broker goes away meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BulkDeliveryError,
    DeliveryTimeoutError,
    PartitionerError,
    ProducerClosedError,
    RecordTooLargeError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import OffsetRange
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer, Values

BUFFER = 65_536


def numbered(count: int, size: int = 100) -> list[bytes]:
    return [b"%0*d" % (size, n) for n in range(count)]


@virtual_time
async def test_some_batches_fail(producing: StartProducer) -> None:
    fake = one_topic(2, brokers=1)
    async with producing(fake, batch_size=1000, partitioner="kip794") as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.fail_produce("t", 0, 29)
        delivery = await producer.send_many("t", numbered(100), partition=0)
        with pytest.raises(BulkDeliveryError, match=r"of 100 records") as caught:
            await delivery
        error = caught.value
        (failure,) = error.failures
        assert (failure.partition, failure.error.code, error.retriable) == (0, 29, False)
        assert error.__cause__ is failure.error
        assert error.failed + error.delivered.records == 100
        assert 0 < error.failed < 100


@virtual_time
async def test_expired_records_and_those_nobody_looked_at(producing: StartProducer) -> None:
    fake, unseen = one_topic(1, brokers=1), []
    async with producing(
        fake, delivery_timeout_ms=5000, request_timeout_ms=2000, on_error=unseen.append
    ) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        delivery = await producer.send_many("t", numbered(500))
        dropped = await producer.send_many("t", numbered(300))
        with pytest.raises(BulkDeliveryError) as caught:
            await delivery
        assert isinstance(caught.value.__cause__, DeliveryTimeoutError)
        assert caught.value.failed == 500
        del dropped
        await asyncio.sleep(1)
        assert sum(failure.records for failure in unseen) == 300
        assert producer.metrics().producer["record-error-total"] == 800
        fake.resume_broker(0)


@virtual_time
async def test_batches_too_large_for_the_topic_are_split(
    producing: StartProducer, values: Values
) -> None:
    fake = one_topic(1, max_message_bytes=1024, brokers=1)
    async with producing(
        fake, batch_size=200_000, linger_ms=1000, max_request_size=300_000
    ) as producer:
        sent = numbered(1500)
        sent[700] = bytes(2000)
        delivery = await producer.send_many("t", sent)
        with pytest.raises(BulkDeliveryError, match="1 of 1500") as caught:
            await delivery
        assert isinstance(caught.value.__cause__, RecordTooLargeError)
        assert caught.value.delivered.partitions == {0: (OffsetRange(0, 1499),)}
        assert producer.metrics().producer["batch-split-total"] > 1
    del sent[700]
    assert values(fake, "t") == sent


@virtual_time
async def test_a_partitioner_that_fails_on_the_way(producing: StartProducer) -> None:
    class Fails:
        def partition(self, topic: Any, key: Any, value: Any, *_: Any) -> int:
            return 0 if value != b"%0100d" % 700 else 1 // 0

    fake = one_topic(2, brokers=1)
    async with producing(fake, partitioner=Fails()) as producer:
        with pytest.raises(
            PartitionerError, match="700 records of the call were handed over"
        ) as caught:
            await producer.send_many("t", numbered(1000))
        assert (await caught.value.delivery).records == 700


@virtual_time
async def test_stopped_on_the_way(producing: StartProducer, values: Values) -> None:
    fake, sent = one_topic(1, brokers=1), numbered(10_000)
    fake.round_trip_s = 0.1
    async with producing(fake, buffer_memory=BUFFER) as producer:
        bulk = asyncio.create_task(producer.send_many("t", sent))
        await asyncio.sleep(0.5)
    with pytest.raises(ProducerClosedError, match="records of the call were handed over") as caught:
        await bulk
    metadata = await caught.value.delivery
    assert 0 < metadata.records < 10_000
    assert values(fake, "t") == sent[: metadata.records]


@virtual_time
async def test_a_leader_change_on_the_way(producing: StartProducer, values: Values) -> None:
    fake, sent = one_topic(1, brokers=2), numbered(20_000)
    fake.round_trip_s = 0.01
    async with producing(fake, buffer_memory=BUFFER) as producer:
        bulk = asyncio.create_task(producer.send_many("t", sent))
        for _ in range(5):
            await asyncio.sleep(0.05)
            fake.drop_connections()
        await (await bulk)
    assert values(fake, "t") == sent
