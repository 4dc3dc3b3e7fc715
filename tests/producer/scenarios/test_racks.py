"""Rack-aware choice (KIP-1123) on a cluster with racks."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from tests.producer.support import StartProducer

AWARE = {"partitioner_rack_aware": True, "client_rack": "r0", "batch_size": 400, "linger_ms": 1}


def four_brokers(*racks: str | None) -> FakeCluster:
    """Partition n is led by broker n modulo 4."""
    fake = FakeCluster(brokers=4, racks=racks or ("r0", "r1", "r0", "r1"))
    fake.create_topic("t", 8)
    return fake


async def fair_share(producer: Any, count: int) -> Counter[int]:
    deliveries = []
    for _ in range(count):
        deliveries.append(await producer.send("t", bytes(150)))
        await asyncio.sleep(0.001)
    return Counter([(await delivery).partition for delivery in deliveries])


BOTH = pytest.mark.parametrize("name", ["late", "kip794"])


@BOTH
@virtual_time
async def test_records_without_key_stay_in_the_rack(name: str, producing: StartProducer) -> None:
    fake = four_brokers()
    async with producing(fake, partitioner=name, **AWARE) as producer:
        assert set(await fair_share(producer, 400)) == {0, 2, 4, 6}
        for key in (b"a", b"b", b"c", b"d"):
            metadata = await producer.send_and_wait("t", b"v", key)
            assert metadata.partition == partition_for_key(key, 8)


@BOTH
@virtual_time
async def test_when_nobody_in_the_rack_leads_all_compete(
    name: str, producing: StartProducer
) -> None:
    """And when somebody does again, the rack has everything again."""
    fake = four_brokers()
    async with producing(fake, partitioner=name, metadata_max_age_ms=500, **AWARE) as producer:
        await fair_share(producer, 20)
        for partition in (0, 2, 4, 6):
            fake.move_leader("t", partition, 1)
        await asyncio.sleep(1)
        assert set(await fair_share(producer, 600)) == set(range(8))
        fake.move_leader("t", 3, 0)
        await asyncio.sleep(1)
        await fair_share(producer, 20)  # kip794 leaves a partition when it has got its bytes
        assert set(await fair_share(producer, 100)) == {3}


@BOTH
@virtual_time
async def test_a_slow_broker_of_the_rack_gets_less_and_the_others_nothing(
    name: str, producing: StartProducer
) -> None:
    fake = four_brokers()
    fake.delay_produce(0, 0.05)
    async with producing(fake, partitioner=name, **AWARE) as producer:
        counts = await fair_share(producer, 800)
    assert set(counts) <= {0, 2, 4, 6}
    assert counts[0] + counts[4] < counts[2] + counts[6]


@BOTH
@pytest.mark.parametrize(
    ("racks", "options"),
    [
        ((None, None, None, None), AWARE),
        (("r1", "r1", "r2", "r2"), AWARE),
        (("r0", "r1", "r0", "r1"), AWARE | {"partitioner_rack_aware": False}),
    ],
    ids=["brokers without racks", "no broker in the rack", "not rack-aware"],
)
@virtual_time
async def test_without_anybody_near_all_compete(
    name: str, racks: tuple[str | None, ...], options: dict[str, Any], producing: StartProducer
) -> None:
    async with producing(four_brokers(*racks), partitioner=name, **options) as producer:
        assert set(await fair_share(producer, 400)) == set(range(8))


@virtual_time
async def test_the_other_partitioners_do_not_look_at_racks(producing: StartProducer) -> None:
    """As in Java."""
    options = AWARE | {"partitioner": "round-robin"}
    async with producing(four_brokers(), **options) as producer:
        assert set(await fair_share(producer, 16)) == set(range(8))
