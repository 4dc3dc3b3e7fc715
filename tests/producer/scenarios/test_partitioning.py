"""Which partition a record goes to, as seen in the logs of a cluster (KIP-794, 2.8).

Ids such as ``K9`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.murmur2 import partition_for_key
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer


async def fair_share(producer: Any, count: int, pause: float = 0.002) -> list[Any]:
    """Send unkeyed records at a steady rate."""
    deliveries = []
    for _ in range(count):
        deliveries.append(await producer.send("t", bytes(150)))
        await asyncio.sleep(pause)
    return deliveries


async def shares(deliveries: list[Any]) -> Counter[int]:
    """How many of the records each partition got; -1 for those that failed."""
    results = await asyncio.gather(*deliveries, return_exceptions=True)
    return Counter(getattr(result, "partition", -1) for result in results)


SMALL = {"partitioner": "kip794", "batch_size": 400, "linger_ms": 1}


@pytest.mark.parametrize("adaptive", [True, False])
@virtual_time
async def test_healthy_brokers_get_equal_shares(adaptive: bool, producing: StartProducer) -> None:
    """K9: within a few percent, adaptive or not."""
    fake = one_topic()
    async with producing(fake, adaptive_partitioning_enable=adaptive, **SMALL) as producer:
        counts = await shares(await fair_share(producer, 6000, 0.0005))
    assert set(counts) == {0, 1, 2}
    assert all(count == pytest.approx(2000, rel=0.15) for count in counts.values())


@virtual_time
async def test_a_slow_broker_gets_less(producing: StartProducer) -> None:
    """KIP-794: by the length of its queue; without adaptivity it gets its third."""
    got = {}
    for adaptive in (True, False):
        fake = one_topic()
        fake.delay_produce(0, 0.02)
        async with producing(fake, adaptive_partitioning_enable=adaptive, **SMALL) as producer:
            counts = await shares(await fair_share(producer, 3000, 0.0005))
        got[adaptive] = counts[0] / 3000
    assert got[True] < 0.20
    assert got[False] == pytest.approx(1 / 3, abs=0.05)


@virtual_time
async def test_a_dead_broker_is_left_out_and_comes_back(producing: StartProducer) -> None:
    """K1: also when nothing is queued for it any more; and after its return it has its share."""
    fake = one_topic()
    options = SMALL | {
        "availability_timeout_ms": 500,
        "delivery_timeout_ms": 3000,
        "request_timeout_ms": 1000,
    }
    async with producing(fake, **options) as producer:
        await shares(await fair_share(producer, 100))
        fake.stop_broker(0, elect=False)
        lost = await fair_share(producer, 500)
        assert (await shares(lost))[-1] > 0  # those queued before the timeout
        assert not inspect(producer).accumulator.topics["t"].queues[0].batches
        counts = await shares(await fair_share(producer, 1000))
        assert counts[0] == counts[-1] == 0
        fake.start_broker(0)
        await shares(await fair_share(producer, 600))
        counts = await shares(await fair_share(producer, 1000))
        assert counts[0] == pytest.approx(333, rel=0.25)


@virtual_time
async def test_a_silent_broker_is_left_out_and_comes_back(producing: StartProducer) -> None:
    """K2: it accepts requests until five are in flight, then it is known to be stuck."""
    fake = one_topic()
    async with producing(fake, availability_timeout_ms=200, **SMALL) as producer:
        await shares(await fair_share(producer, 100))
        fake.stall_broker(0)
        early = await fair_share(producer, 500)
        queue = inspect(producer).accumulator.topics["t"].queues[0]
        queued = len(queue.batches)
        late = await fair_share(producer, 1000)
        assert len(queue.batches) <= queued
        fake.resume_broker(0)
        counts = await shares(late)
        assert counts[0] == counts[-1] == 0
        assert (await shares(early))[-1] == 0
        await shares(await fair_share(producer, 100))
        counts = await shares(await fair_share(producer, 1000))
        assert counts[0] == pytest.approx(333, rel=0.25)


@virtual_time
async def test_all_brokers_stuck_leave_all_partitions_open(producing: StartProducer) -> None:
    """KIP-794: with nothing better to choose, records are kept and delivered later."""
    fake = one_topic()
    async with producing(fake, availability_timeout_ms=200, **SMALL) as producer:
        await shares(await fair_share(producer, 100))
        for node in range(3):
            fake.stall_broker(node)
        deliveries = await fair_share(producer, 1000)
        for node in range(3):
            fake.resume_broker(node)
        counts = await shares(deliveries)
        assert set(counts) == {0, 1, 2}


@virtual_time
async def test_keys_decide_as_in_java(producing: StartProducer) -> None:
    """P3: murmur2 of the key; load has no say in it; explicit partitions beat the key."""
    fake = one_topic(7)
    keys = [b"", b"a", b"UA", "žluťoučký".encode(), *[b"%d" % n for n in range(40)]]
    async with producing(fake) as producer:
        for key in keys:
            metadata = await producer.send_and_wait("t", b"v", key=key)
            assert metadata.partition == partition_for_key(key, 7)
        metadata = await producer.send_and_wait("t", b"v", key=b"UA", partition=6)
        assert metadata.partition == 6


@virtual_time
async def test_keys_can_be_ignored(producing: StartProducer) -> None:
    """KIP-794: partitioner.ignore.keys."""
    fake = one_topic(7)
    async with producing(fake, partitioner_ignore_keys=True, batch_size=1) as producer:
        partitions = set()
        for _ in range(60):
            metadata = await producer.send_and_wait("t", b"v", key=b"the same")
            partitions.add(metadata.partition)
    assert partitions == set(range(7))


@virtual_time
async def test_a_topic_that_grows_is_used_in_full(producing: StartProducer) -> None:
    """K9: new partitions get their share once metadata tells of them; explicit ones at once."""
    fake = one_topic(1)
    async with producing(fake, metadata_max_age_ms=1000, **SMALL) as producer:
        await shares(await fair_share(producer, 50))
        fake.add_partitions("t", 4)
        assert (await producer.send_and_wait("t", b"v", partition=3)).partition == 3
        counts = await shares(await fair_share(producer, 2000))
        assert set(counts) == {0, 1, 2, 3}
