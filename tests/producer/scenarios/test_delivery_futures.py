"""Metadata of records, and deliveries as asyncio futures, from ``send`` to the outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Delivery, DeliveryFuture
from kafkaclient.errors import BrokerError, KafkaError
from kafkaclient.testing.clock import virtual_time
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer


@virtual_time
async def test_every_way_of_sending_tells_the_same_metadata(producing: StartProducer) -> None:
    told: list[Delivery] = []
    fake = one_topic(1)
    async with producing(fake, on_delivery=told.append) as producer:
        held = producer.send_nowait("t", b"0")  # for a topic that is not known yet
        metadata = [
            await held,
            await producer.send_and_wait("t", b"1"),
            await (await producer.send("t", b"2")),
        ]
        await producer.send_many("t", [b"3"])
        await producer.flush()
        fake.delete_records("t", 0, 2)
        metadata.append(await DeliveryFuture(producer.send_nowait("t", b"4")))
        await asyncio.sleep(0)
        metadata.append(told[3].result())
    assert [(m.offset, m.timestamp_type, m.log_start_offset) for m in metadata] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
        (4, 0, 2),
        (3, 0, 0),
    ]


@virtual_time
async def test_without_an_answer_the_metadata_tell_nothing(producing: StartProducer) -> None:
    async with producing(one_topic(1), acks=0) as producer:
        metadata = await producer.send_and_wait("t", b"v")
    assert metadata[2:3] + metadata[4:] == (-1, -1, -1)


@virtual_time
async def test_futures_of_held_sent_and_failed_records(producing: StartProducer) -> None:
    fake = one_topic(1)
    async with producing(fake, linger_ms=0) as producer:
        held = DeliveryFuture(producer.send_nowait("t", b"held"))
        cancelled = DeliveryFuture(producer.send_nowait("t", b"cancelled"))
        gathered = asyncio.gather(held, cancelled, return_exceptions=True)
        await asyncio.sleep(0)
        cancelled.cancel()
        first, second = await gathered
        assert first.offset == 0
        assert isinstance(second, asyncio.CancelledError)
        fake.fail_produce("t", 0, 87)
        failed = DeliveryFuture(await producer.send("t", b"refused"))
        with pytest.raises(BrokerError):
            await asyncio.wait_for(failed, 60)
    assert [record.value for record in fake.log("t", 0)] == [b"held", b"cancelled"]


@virtual_time
async def test_a_future_of_a_subclass_translates(producing: StartProducer) -> None:
    class Sent(DeliveryFuture):
        __slots__ = ()

        def _translate_result(self, metadata: Any) -> str:
            return f"{metadata.topic_partition} at {metadata.offset}"

        def _translate_error(self, error: KafkaError) -> Exception:
            return OSError(str(error))

    fake = one_topic(1)
    async with producing(fake, linger_ms=0) as producer:
        assert await Sent(await producer.send("t", b"v")) == "t-0 at 0"
        fake.fail_produce("t", 0, 87)
        with pytest.raises(OSError, match="t-0"):
            await Sent(await producer.send("t", b"v"))
