"""Brokers that are left out, as told by metrics and load (producers on the fake cluster)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from kafkaclient.testing.fake import FakeCluster
    from tests.producer.support import StartProducer

REASONS = ("overdue", "availability", "throttled", "connection")


def three_brokers() -> FakeCluster:
    return one_topic(round_trip_s=0.001)


async def load(producer: Any, seconds: float) -> list[Any]:
    deliveries = []
    for _ in range(int(seconds / 0.002)):
        deliveries.append(await producer.send("t", bytes(100)))
        await asyncio.sleep(0.002)
    return deliveries


def exclusions(producer: Any, node: int = 0) -> dict[str, int]:
    """By reason, those that are not 0."""
    metrics = producer.metrics()
    counts = {reason: metrics.exclusions[node][reason] for reason in REASONS}
    told = metrics.brokers[node]
    assert counts == {reason: told[f"exclusion-{reason}-total"] for reason in REASONS}
    assert sum(counts.values()) == producer.load().brokers[node].exclusions
    return {reason: count for reason, count in counts.items() if count}


@pytest.mark.parametrize("partitioner", ["late", "kip794"])
@virtual_time
async def test_healthy_brokers_are_never_excluded(
    partitioner: str, producing: StartProducer
) -> None:
    options = {"partitioner": partitioner, "batch_size": 1000}
    async with producing(three_brokers(), **options) as producer:
        before = producer.load().brokers
        assert [broker.excluded for broker in before] == [None] * 3, "nothing is known of them"
        await asyncio.gather(*await load(producer, 2))
        assert [exclusions(producer, node) for node in range(3)] == [{}, {}, {}]
        brokers = producer.load().brokers
        assert [broker.excluded for broker in brokers] == [None] * 3
        assert all(0.0009 <= broker.latency_s < 0.01 for broker in brokers)
        most = producer.config.max_in_flight_requests_per_connection
        assert all(1 <= broker.window <= most for broker in brokers)
        if partitioner == "kip794":
            assert all(broker.window == most for broker in brokers), "it does not adapt"


@virtual_time
async def test_a_throttled_broker(producing: StartProducer) -> None:
    fake = three_brokers()
    async with producing(fake, partitioner="late") as producer:
        fake.throttle(1000, node_id=0)
        deliveries = await load(producer, 0.5)
        assert producer.load().brokers[0].excluded == "throttled"
        fake.throttle(0)
        deliveries += await load(producer, 2)
        assert producer.load().brokers[0].excluded is None
        assert exclusions(producer) == {"throttled": 1}
        await asyncio.gather(*deliveries)


@virtual_time
async def test_a_broker_that_is_gone(producing: StartProducer) -> None:
    fake = three_brokers()
    async with producing(fake, partitioner="late") as producer:
        await asyncio.gather(*await load(producer, 1))
        fake.stop_broker(0, elect=False)
        deliveries = await load(producer, 1)
        assert producer.load().brokers[0].excluded == "connection"
        fake.start_broker(0)
        deliveries += await load(producer, 3)
        assert producer.load().brokers[0].excluded is None
        assert exclusions(producer) == {"connection": 1}
        await asyncio.gather(*deliveries)


@virtual_time
async def test_a_silent_broker_is_overdue(producing: StartProducer) -> None:
    fake = three_brokers()
    async with producing(fake, partitioner="late") as producer:
        await asyncio.gather(*await load(producer, 1))
        fake.stall_broker(0)
        deliveries = await load(producer, 2)
        assert producer.load().brokers[0].excluded == "overdue"
        assert exclusions(producer) == {"overdue": 1}
        fake.resume_broker(0)
        deliveries += await load(producer, 2)
        assert producer.load().brokers[0].excluded is None
        await asyncio.gather(*deliveries)


@virtual_time
async def test_skew_and_switches_tell_even_from_uneven(producing: StartProducer) -> None:
    fake = three_brokers()
    fake.delay_produce(0, 0.02)
    told = {}
    for adaptive in (False, True):
        options = {"adaptive_partitioning_enable": adaptive, "linger_ms": 0}
        async with producing(fake, partitioner="late", **options) as producer:
            await asyncio.gather(*await load(producer, 3))
            metrics = producer.metrics()
        told[adaptive] = metrics.topics["t"]
        bound = metrics.partitions
        batches = sum(bound[TopicPartition("t", p)]["batch-bound-total"] for p in range(3))
        assert batches / 3 < told[adaptive]["partition-switch-total"] < batches
        assert told[adaptive]["partition-switch-rate"] > 0
    assert told[False]["partition-skew"] == pytest.approx(1.0, abs=0.1)
    assert told[True]["partition-skew"] > 1.2
