"""Memory is bounded by bytes, and waiting is fair; records parked before metadata (B1, B2).

Ids such as ``B1`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    BufferFullError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    RecordTooLargeError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import Outcomes, StartProducer, Values

BUFFER = 65_536


def used(producer: Any) -> int:
    buffer_pool = inspect(producer).accumulator.buffer_pool
    return int(buffer_pool.total - buffer_pool.available)


async def filled(producer: Any, topic: str = "t") -> list[Any]:
    """Send until nothing more fits."""
    deliveries = []
    while True:
        try:
            deliveries.append(producer.send_nowait(topic, bytes(1000)))
        except BufferFullError:
            return deliveries


# --- B1: bounds ---------------------------------------------------------------------------------


@virtual_time
async def test_the_buffer_is_bounded_and_waiters_are_admitted_in_order(
    producing: StartProducer,
) -> None:
    """B1: full, the next send waits; room is given first come, first served."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, buffer_memory=BUFFER) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        deliveries = await filled(producer)
        assert 0.9 * BUFFER <= used(producer) <= BUFFER
        order: list[int] = []

        async def sender(n: int) -> None:
            # The third is small and would fit before the others.
            await producer.send("t", bytes(10 if n == 2 else 1000))
            order.append(n)

        waiting = [asyncio.create_task(sender(n)) for n in range(5)]
        await asyncio.sleep(1)
        assert order == []
        assert producer.metrics().producer["waiting-threads"] == 5
        with pytest.raises(BufferFullError):
            producer.send_nowait("t", b"")  # those who wait come first
        fake.resume_broker(0)
        await asyncio.gather(*waiting, *deliveries)
        assert order == [0, 1, 2, 3, 4]


@virtual_time
async def test_waiting_for_room_ends_by_max_block(producing: StartProducer) -> None:
    """B1: the error names the bytes used, the limit, and the broker that most is queued for."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, buffer_memory=BUFFER, max_block_ms=3000) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        deliveries = await filled(producer)
        started = now()
        with pytest.raises(BufferFullError, match=r"buffer\.memory=65536 .* broker 0") as caught:
            await producer.send("t", bytes(1000))
        assert now() - started == pytest.approx(3.0, abs=0.01)
        assert "within 3 s" in str(caught.value)
        metrics = producer.metrics().producer
        assert metrics["buffer-exhausted-total"] == 2  # send_nowait's, and this one
        fake.resume_broker(0)
        await asyncio.gather(*deliveries)


@virtual_time
async def test_a_cancelled_waiter_gives_way_to_the_next(producing: StartProducer) -> None:
    """B2: the large one at the head leaves; the small one behind it fits."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, buffer_memory=BUFFER) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        deliveries = [producer.send_nowait("t", bytes(20_000)) for _ in range(3)]
        large = asyncio.create_task(producer.send("t", bytes(20_000)))
        small = asyncio.create_task(producer.send("t", bytes(1000)))
        await asyncio.sleep(1)
        assert not small.done()
        large.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert small.done()
        fake.resume_broker(0)
        await asyncio.gather(*deliveries, small.result())


@virtual_time
async def test_reaching_the_bound_ends_lingering(producing: StartProducer) -> None:
    """B2: with ten seconds of linger the first request leaves at once."""
    fake = one_topic(4, brokers=1)
    async with producing(fake, buffer_memory=BUFFER, linger_ms=10_000) as producer:
        for n in range(200):
            await producer.send("t", bytes(1000), partition=n % 4)
        assert now() < 0.1
        assert fake.requests_of(ApiKey.PRODUCE)


@virtual_time
async def test_a_record_larger_than_the_buffer_is_refused(producing: StartProducer) -> None:
    """B1: it could wait for ever."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, buffer_memory=BUFFER) as producer:
        with pytest.raises(RecordTooLargeError, match=r"buffer\.memory=65536"):
            await producer.send("t", bytes(BUFFER))


async def refused(fake: FakeCluster, _: Any) -> None:
    fake.fail_produce("t", 0, 87, times=100)


async def expired(fake: FakeCluster, _: Any) -> None:
    fake.stall_broker(0)


async def never_connected(fake: FakeCluster, _: Any) -> None:
    fake.stop_broker(0)


async def split(fake: FakeCluster, _: Any) -> None:
    fake.configure_topic("t", max_message_bytes=2500)


async def nothing(_: FakeCluster, __: Any) -> None:
    pass


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("fate", [nothing, refused, expired, never_connected, split])
@virtual_time
async def test_memory_comes_back_after_every_outcome(
    codec: str, fate: Any, producing: StartProducer, outcomes: Outcomes
) -> None:
    """B1: to the last byte: success, refusal, expiry on the wire and before, split."""
    fake = one_topic(1, brokers=1)
    async with producing(
        fake,
        buffer_memory=BUFFER,
        compression_type=codec,
        linger_ms=100,
        request_timeout_ms=5000,
        delivery_timeout_ms=8000,
    ) as producer:
        await producer.send_and_wait("t", b"first")
        await fate(fake, producer)
        deliveries = await filled(producer)
        waiting = asyncio.create_task(producer.send("t", bytes(1000)))
        results = await outcomes(deliveries)
        if fate in (expired, never_connected):
            assert all(isinstance(result, DeliveryTimeoutError) for result in results)
        elif fate in (nothing, split):
            assert [metadata.offset for metadata in results] == list(range(1, len(results) + 1))
        last = await waiting
        assert used(producer) < BUFFER
        await outcomes([last])
        await asyncio.sleep(10)
        assert used(producer) == 0


# --- parked records -----------------------------------------------------------------------------


@virtual_time
async def test_parked_records_keep_their_order(producing: StartProducer, values: Values) -> None:
    """B8: send_nowait before the metadata, send while it is on its way, and after it."""
    fake = one_topic(1, brokers=1)
    fake.round_trip_s = 0.05
    async with producing(fake) as producer:
        parked = [producer.send_nowait("t", b"%d" % n) for n in range(5)]
        assert [delivery.done() for delivery in parked] == [False] * 5
        waiting = asyncio.create_task(producer.send("t", b"5"))
        await asyncio.sleep(0.01)
        parked.append(producer.send_nowait("t", b"6"))
        await waiting
        after = await producer.send("t", b"7")
        await asyncio.gather(*parked, after)
    log = values(fake, "t")
    assert sorted(log) == [b"%d" % n for n in range(8)]
    assert [v for v in log if v != b"5"] == [b"%d" % n for n in (0, 1, 2, 3, 4, 6, 7)]


@virtual_time
async def test_sends_begun_before_the_metadata_keep_their_order(
    producing: StartProducer, values: Values
) -> None:
    """B8: gathered sends of a new topic are written in the order in which they were called."""
    fake = one_topic(1, brokers=1)
    async with producing(fake) as producer:
        await asyncio.gather(*[producer.send("t", b"%d" % n) for n in range(100)])
    assert values(fake, "t") == [b"%d" % n for n in range(100)]


@virtual_time
async def test_each_parked_record_has_its_own_deadline(producing: StartProducer) -> None:
    """B1, L2: max.block.ms from its own send_nowait."""
    fake = FakeCluster(auto_create_topics=False)
    async with producing(fake, max_block_ms=5000) as producer:
        first = producer.send_nowait("missing", bytes(100))
        await asyncio.sleep(2)
        second = producer.send_nowait("missing", bytes(200))
        assert used(producer) > 300
        with pytest.raises(MetadataTimeoutError):
            await first
        assert now() == pytest.approx(5.0, abs=0.01)
        assert 200 < used(producer) < 300
        fake.create_topic("missing", 1)
        await second
        await producer.flush()
        assert used(producer) == 0


@virtual_time
async def test_a_parked_record_out_of_range_fails_alone(
    producing: StartProducer, values: Values
) -> None:
    """B1: the others go on, the memory comes back."""
    fake = one_topic(2, brokers=1)
    async with producing(fake) as producer:
        good = producer.send_nowait("t", b"1", partition=0)
        bad = producer.send_nowait("t", b"2", partition=2)
        also_good = producer.send_nowait("t", b"3", partition=0)
        with pytest.raises(PartitionOutOfRangeError, match="numbered from 0; 2 is not one"):
            await bad
        await asyncio.gather(good, also_good)
        with pytest.raises(PartitionOutOfRangeError):
            await producer.send("t", b"4", partition=7)
        await producer.flush()
        assert used(producer) == 0
    assert values(fake, "t", 0) == [b"1", b"3"]


@virtual_time
async def test_parked_records_count_against_the_buffer(producing: StartProducer) -> None:
    """B1: and give their room to others when they fail."""
    fake = FakeCluster(auto_create_topics=False)
    fake.create_topic("t", 1)
    async with producing(fake, buffer_memory=BUFFER, max_block_ms=5000) as producer:
        await producer.partitions_for("t")
        parked = await filled(producer, "missing")
        assert len(parked) > 55
        await asyncio.sleep(1)
        await producer.send_and_wait("t", bytes(1000))
        assert now() == pytest.approx(5.0, abs=0.1)
        assert all(isinstance(delivery.exception(), MetadataTimeoutError) for delivery in parked)


@virtual_time
async def test_flush_waits_for_parked_records(producing: StartProducer, values: Values) -> None:
    """L3: also when the topic is only just being created."""
    fake = FakeCluster(partitions=1)
    async with producing(fake, linger_ms=10_000) as producer:
        delivery = producer.send_nowait("new", b"v")
        await producer.flush()
        assert delivery.exception() is None
        assert now() < 1.0
    assert values(fake, "new") == [b"v"]


@virtual_time
async def test_metadata_that_fails_at_first_only_delays(producing: StartProducer) -> None:
    """C9: the connection breaks while the topic is asked for."""
    fake = one_topic(1, brokers=1)
    async with producing(fake) as producer:
        fake.control(ApiKey.METADATA, CLOSE)
        delivery = producer.send_nowait("t", b"v")
        await delivery
        assert now() < 1.0


@virtual_time
async def test_a_buffer_may_be_used_again_once_send_has_returned(
    producing: StartProducer, values: Values
) -> None:
    """Also while the record is parked: it was written with another content, or acked unwritten."""
    fake = one_topic(1, brokers=1)
    given = [b"one", b"two", b"three" * 1000]
    async with producing(fake, batch_size=100) as producer:
        buffer, deliveries = bytearray(), []
        for value in given:
            buffer[:] = value
            deliveries.append(producer.send_nowait("t", buffer))
        buffer[:] = bytes(50_000)
        assert [metadata.offset for metadata in await asyncio.gather(*deliveries)] == [0, 1, 2]
    assert values(fake, "t") == given


@virtual_time
async def test_flush_does_not_hold_up_others_for_parked_records(producing: StartProducer) -> None:
    """Batches leave at once; records that are parked later are not waited for."""
    fake = FakeCluster(auto_create_topics=False)
    fake.create_topic("t", 1)
    async with producing(fake, linger_ms=20_000, max_block_ms=5000) as producer:
        await producer.partitions_for("t")
        known = await producer.send("t", b"v")
        parked = [producer.send_nowait("missing", b"v")]
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(1)
        assert known.done()
        assert not flushing.done()
        parked.append(producer.send_nowait("missing", b"v"))
        await flushing
        assert now() == pytest.approx(5.0, abs=0.1)
        assert [delivery.done() for delivery in parked] == [True, False]
        await asyncio.gather(*parked, return_exceptions=True)
