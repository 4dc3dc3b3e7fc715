"""Topics that come and go under a producer: forgotten as idle, created anew, grown, missing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkaclient.errors import KafkaError, PartitionOutOfRangeError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.murmur2 import partition_for_key


def now() -> float:
    return asyncio.get_running_loop().time()


async def delivered(deliveries: list[Any]) -> int:
    """How many of them were."""
    outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    return sum(not isinstance(outcome, KafkaError) for outcome in outcomes)


# --- idle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitioner", ["kip794", "late"])
@virtual_time
async def test_an_outage_longer_than_the_idle_time_ends(partitioner: str, producing: Any) -> None:
    """Records without an outcome keep their topic's metadata fresh, also if none is written."""
    fake = FakeCluster(brokers=3)
    fake.create_topic("t", 2, assignments=[[0], [0]])
    async with producing(fake, metadata_max_idle_ms=5000, partitioner=partitioner) as producer:
        await producer.send_and_wait("t", b"before")
        fake.stop_broker(0)
        waiting = [producer.send_nowait("t", b"%d" % n) for n in range(10)]
        await asyncio.sleep(60)
        assert not any(delivery.done() for delivery in waiting)
        fake.start_broker(0)
        assert await delivered(waiting) == 10
        assert now() < 65


@virtual_time
async def test_a_topic_taken_up_while_it_is_dropped_is_known_again(producing: Any) -> None:
    """The record goes to a broker that has just lost the partition; only metadata can tell."""
    fake = FakeCluster(brokers=2)
    fake.create_topic("t", 1, assignments=[[1, 0]])
    async with producing(fake, metadata_max_idle_ms=5000) as producer:
        await producer.send_and_wait("t", b"before")
        await asyncio.sleep(10)
        fake.round_trip_s = 0.5
        producer._core.metadata.request_refresh("any")
        await asyncio.sleep(0.25)
        delivery = producer.send_nowait("t", b"during")
        fake.stop_broker(1)
        await delivery
        assert now() < 20


@virtual_time
async def test_a_topic_is_kept_while_send_waits_for_room(producing: Any) -> None:
    fake = FakeCluster(brokers=2)
    fake.create_topic("a", 1, assignments=[[1]])
    fake.create_topic("b", 1, assignments=[[0]])
    options = {"linger_ms": 0, "buffer_memory": 20_000, "metadata_max_idle_ms": 5000}
    async with producing(fake, **options) as producer:
        await producer.send_and_wait("a", b"1")
        await producer.send_and_wait("b", b"1")
        fake.stall_broker(0)
        first = producer.send_nowait("b", bytes(19_000))
        waiting = asyncio.create_task(producer.send("a", bytes(5000)))
        await asyncio.sleep(7)
        producer._core.metadata.request_refresh("any")
        await asyncio.sleep(1)
        fake.resume_broker(0)
        assert await delivered([first, await waiting]) == 2


# --- grown --------------------------------------------------------------------------------------


@virtual_time
async def test_records_without_partition_go_to_new_ones_too(producing: Any) -> None:
    """Late binding: what was sent before the topic grew may be bound to a partition made since."""
    fake = FakeCluster(brokers=2)
    fake.create_topic("t", 2)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"v")
        fake.add_partitions("t", 6)
        producer._core.metadata.request_refresh("any")
        await asyncio.sleep(1)
        partitions = {(await producer.send_and_wait("t", b"v")).partition for _ in range(12)}
        assert partitions == set(range(6))


@virtual_time
async def test_a_partition_not_known_yet_is_asked_for(producing: Any) -> None:
    """send_nowait cannot wait for it, but the next call goes well."""
    fake = FakeCluster(brokers=1)
    fake.create_topic("t", 1)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"v")
        fake.add_partitions("t", 2)
        with pytest.raises(PartitionOutOfRangeError, match="grown"):
            producer.send_nowait("t", b"v", partition=1)
        await asyncio.sleep(1)
        assert await delivered([producer.send_nowait("t", b"v", partition=1)]) == 1


@pytest.mark.parametrize("partitioner", ["kip794", "late"])
@virtual_time
async def test_records_that_wait_while_the_topic_grows(partitioner: str, producing: Any) -> None:
    """Keyed ones stay where their key was counted, in their order; those sent later go by the new
    count."""
    fake = FakeCluster(brokers=1)
    fake.create_topic("t", 2)
    async with producing(fake, linger_ms=0, partitioner=partitioner) as producer:
        await producer.send_and_wait("t", b"v", key=b"k")
        fake.stall_broker(0)
        waiting = [await producer.send("t", b"%d" % n, key=b"k%d" % (n % 5)) for n in range(50)]
        waiting += [await producer.send("t", b"%d" % n) for n in range(50, 60)]
        fake.add_partitions("t", 7)
        fake.resume_broker(0)
        producer._core.metadata.request_refresh("any")
        places = await asyncio.gather(*waiting)
        assert {p.partition for p in places[:50]} == {0, 1}
        await asyncio.sleep(1)
        for n in range(5):
            place = await producer.send_and_wait("t", b"v", key=b"k%d" % n)
            assert place.partition == partition_for_key(b"k%d" % n, 7)
    written = [r.value for p in range(7) for r in fake.log("t", p)]
    assert sorted(v for v in written if v != b"v") == sorted(b"%d" % n for n in range(60))
    for p in range(2):
        keyed = [int(r.value or b"") for r in fake.log("t", p) if r.key and r.value != b"v"]
        assert keyed == sorted(keyed)
