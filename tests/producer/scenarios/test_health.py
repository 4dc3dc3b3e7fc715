"""``Producer.healthy()``: what a readiness probe learns while brokers end and come back."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from kafkaclient.cluster.health import check_brokers
from kafkaclient.cluster.view import Broker, ClusterView, PartitionView, TopicView
from kafkaclient.cluster.waits import Waits
from kafkaclient.errors import (
    BrokerConnectionError,
    KafkaError,
    MetadataTimeoutError,
    ProducerStateError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from kafkaclient import Health
    from tests.producer.support import StartProducer


def two_topics() -> FakeCluster:
    """Topic ``t`` has a partition on each of three brokers, topic ``one`` only on broker 2."""
    fake = one_topic()
    fake.create_topic("one", assignments=[(2,)])
    return fake


async def turned(producer: Producer, *, healthy: bool) -> Health:
    """Ask once in 100 ms, until the answer is this."""
    started = now()
    while bool(health := await producer.healthy()) is not healthy:
        assert now() - started < 5
        await asyncio.sleep(0.1)
    return health


@virtual_time
async def test_only_a_running_producer_is_healthy() -> None:
    fake = one_topic()
    producer = Producer(fake.bootstrap, dialer=fake, rng=Random(1))
    assert str(await producer.healthy()) == "the producer has not been started"
    await producer.start()
    health = await producer.healthy()
    assert (bool(health), str(health)) == (True, "healthy")
    await producer.stop()
    assert not (health := await producer.healthy())
    assert health.problems == ("the producer is stopped",)


@pytest.mark.parametrize("fault", ["stop_broker", "stall_broker"])
@pytest.mark.parametrize("sent", [True, False])
@virtual_time
async def test_it_turns_within_seconds_both_ways(
    producing: StartProducer, fault: str, sent: bool
) -> None:
    """Before the first record all brokers are asked, then the leaders of the topics in use."""
    fake = one_topic()
    async with producing(fake) as producer:
        if sent:
            await producer.send_and_wait("t", b"v")
        assert await producer.healthy()
        for node in range(3):
            getattr(fake, fault)(node)
        started = now()
        health = await turned(producer, healthy=False)
        assert now() - started < 3
        asked = "no leader of the topics in use" if sent else "no broker"
        assert f"{asked} answers" in str(health)
        assert "broker 0" in str(health)
        for node in range(3):
            fake.start_broker(node) if fault == "stop_broker" else fake.resume_broker(node)
        await turned(producer, healthy=True)


@virtual_time
async def test_a_topic_without_a_partition_to_write_to(producing: StartProducer) -> None:
    """Another topic can be written, but the service cannot work; the reason names both."""
    fake = two_topics()
    async with producing(fake) as producer:
        for topic in ("t", "one"):
            await producer.send_and_wait(topic, b"v")
        fake.stall_broker(2)
        health = await producer.healthy()
        assert not health
        (problem,) = health.problems
        assert problem.startswith("no partition of topic one can be written: broker 2")
        (warning,) = health.warnings
        assert warning.startswith("partitions 2 of topic t cannot be written: broker 2")
        assert str(health) == f"{problem}; {warning}"


@pytest.mark.parametrize("other", ["another topic", "no other topic"])
async def test_what_is_asked_and_what_is_said(other: str) -> None:
    """Only leaders of topics in use are asked; a leader may have no address in the metadata."""
    topics = {"orders": TopicView("orders", None, (PartitionView(0, 2),))}
    if other == "another topic":
        topics["x"] = TopicView("x", None, (PartitionView(0, 0),))
    brokers = {n: Broker(n, "host", 9092) for n in range(3)}
    dead = _Probes({2})
    view = cast("Any", _View(brokers, topics))
    health = await check_brokers(view, cast("Any", dead), 1, 0, {}, ())
    assert not health
    assert dead.asked == ([2] if len(topics) == 1 else [0, 2])
    if len(topics) == 1:
        assert str(health) == "no leader of the topics in use answers: broker 2 is dead"
    else:
        assert str(health) == "no partition of topic orders can be written: broker 2 is dead"
    del brokers[2]
    view = _View(brokers, topics)
    health = await check_brokers(cast("Any", view), cast("Any", _Probes(set())), 1, 0, {}, ())
    assert "does not name the address of the leader, broker 2" in str(health)
    assert not health


class _Probes:
    def __init__(self, dead: set[int]) -> None:
        self.dead = dead
        self.asked: list[int] = []

    async def probe(self, node_id: int) -> None:
        self.asked.append(node_id)
        if node_id in self.dead:
            raise BrokerConnectionError(f"broker {node_id} is dead")


class _View:
    def __init__(self, brokers: dict[int, Broker], topics: dict[str, TopicView]) -> None:
        self.view = ClusterView(brokers, topics)
        self.refreshed_at = 0.0
        self.waits = Waits(lambda: 0.0)

    def topic_errors(self) -> dict[str, KafkaError]:
        return {}

    def request_refresh(self, reason: str) -> None:
        """Nothing: there is no cluster."""


@virtual_time
async def test_one_dead_broker_of_three_leaves_the_producer_healthy(
    producing: StartProducer,
) -> None:
    """Records without a key go to other partitions; the warning is for records with a key. Once
    another broker leads, there is nothing to warn of, although no record was sent meanwhile."""
    fake = one_topic(replication_factor=3)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"v")
        fake.stall_broker(1)
        health = await producer.healthy(timeout=0.5)
        assert health
        assert health.warnings
        fake.move_leader("t", 1, 2)
        started = now()
        while (await producer.healthy(timeout=0.5)).warnings:  # has the metadata refreshed
            assert now() - started < 5
            await asyncio.sleep(0.1)


@virtual_time
async def test_a_deleted_topic_is_a_problem_and_a_name_that_never_was_one_is_not(
    producing: StartProducer,
) -> None:
    fake = FakeCluster(3, auto_create_topics=False)
    fake.create_topic("t", 3)
    async with producing(fake, max_block_ms=2000) as producer:
        await producer.send_and_wait("t", b"v")
        with pytest.raises(MetadataTimeoutError):
            await producer.send("a-user-named-it", b"v")
        health = await producer.healthy()
        assert health
        assert "a-user-named-it" in str(health)
        fake.delete_topic("t")
        await asyncio.sleep(6)
        health = await turned(producer, healthy=False)
        assert any("topic t: " in problem for problem in health.problems)


@virtual_time
async def test_a_fatal_error_is_named(producing: StartProducer) -> None:
    fake = one_topic()
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"v")
        core = producer._core
        assert core is not None
        core.fail_producer(ProducerStateError("out of order"))
        assert "cannot send any more: out of order" in str(await producer.healthy())


@virtual_time
async def test_the_answer_comes_in_time(producing: StartProducer) -> None:
    fake = one_topic()
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"v")
        for node in range(3):
            fake.stall_broker(node)
        started = now()
        assert not await producer.healthy(timeout=0.3)
        assert now() - started == pytest.approx(0.3, abs=0.05)
