"""A replica that is dead and not found out: what it holds up, and what it must not (specification
2.3, design 5: health is per partition)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import KafkaError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster, delay_answer
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.producer.support import StartProducer, Values


FENCED_AFTER_S = 9.0
_NOT_LEADER = 6
# Every broker leads partitions with and without a replica on broker 4.
MIXED = [[n % 4, 4, (n + 1) % 4] if n < 4 else [n % 4, (n + 1) % 4, (n + 2) % 4] for n in range(8)]


class Cluster:
    """Five brokers that answer for a partition when all its in-sync replicas have the records."""

    def __init__(self, **options: Any) -> None:
        self.fake = FakeCluster(5, **options)
        self.fake.create_topic("t", assignments=MIXED, min_insync_replicas=2)
        self.fake.round_trip_s = 0.001
        self.found_out = 0.0
        self.fake.control(ApiKey.PRODUCE, self._decide, keep=True)

    def _decide(self, request: Any) -> Any:
        waits = self.found_out - now()
        needs = any(
            4 in inspect(self.fake).partition(topic, number).isr
            for topic, number, _ in request.batches
        )
        return delay_answer(waits) if needs and waits > 0 else None

    async def lose(self, how: Callable[[FakeCluster], None]) -> None:
        """Broker 4 is gone, which the others find out after 9 s."""
        self.found_out = now() + FENCED_AFTER_S
        how(self.fake)
        await asyncio.sleep(FENCED_AFTER_S)
        for partition, replicas in enumerate(MIXED):
            self.fake.set_isr("t", partition, [node for node in replicas if node != 4])


def kill(fake: FakeCluster) -> None:
    fake.stop_broker(4, elect=False)


def pause(fake: FakeCluster) -> None:
    fake.stall_broker(4)


async def latencies(producer: Any, seconds: float, **where: Any) -> list[float]:
    """Of records sent every 50 ms for so long, until each is acknowledged."""
    found: list[float] = []
    began, pending = now(), []
    while now() - began < seconds:
        sent = now()
        delivery = await producer.send("t", b"%.2f" % sent, **where)
        delivery.add_done_callback(lambda _, sent=sent: found.append(now() - sent))
        pending.append(delivery)
        await asyncio.sleep(0.05)
    await asyncio.gather(*pending)
    await asyncio.sleep(0)
    return found


async def warm(producer: Any) -> None:
    """Connections to every broker, and an idea of how fast they are."""
    for _ in range(10):
        await asyncio.gather(
            *[producer.send_and_wait("t", b"warm", partition=partition) for partition in range(8)]
        )


@pytest.mark.parametrize("how", [kill, pause])
@virtual_time
async def test_records_without_key_go_around_a_dead_replica(
    how: Any, producing: StartProducer
) -> None:
    """Every broker leads a partition that waits for the dead one, and one that does not."""
    cluster = Cluster()
    async with producing(cluster.fake) as producer:
        await warm(producer)
        losing = asyncio.create_task(cluster.lose(how))
        found = sorted(await latencies(producer, 12))
        await losing
        cluster.fake.resume_broker(4)
    assert found[int(len(found) * 0.98)] < 0.1
    assert found[-1] < FENCED_AFTER_S + 1  # what was on its way at that moment


@pytest.mark.parametrize("how", [kill, pause])
@virtual_time
async def test_a_partition_is_not_held_up_by_its_neighbour(
    how: Any, producing: StartProducer
) -> None:
    """Partition 0 waits for the dead replica; partition 4, of the same leader, lacks nothing."""
    cluster = Cluster()
    async with producing(cluster.fake) as producer:
        await warm(producer)
        losing = asyncio.create_task(cluster.lose(how))
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(latencies(producer, 5, partition=0))
        await asyncio.sleep(0.5)
        neighbour = sorted(await latencies(producer, 5, partition=4))
        assert neighbour[-1] < 0.1
        assert not waiting.done()
        found = await waiting
        assert max(found) < FENCED_AFTER_S + 0.1
        await losing
        cluster.fake.resume_broker(4)


@pytest.mark.parametrize("how", [kill, pause])
@virtual_time
async def test_order_holds_over_two_connections(
    how: Any, producing: StartProducer, values: Values
) -> None:
    """No partition has batches on both connections; its log is in the order of sending."""
    cluster = Cluster()
    async with producing(cluster.fake) as producer:
        await warm(producer)
        losing = asyncio.create_task(cluster.lose(how))
        needy = [latencies(producer, 12, partition=partition) for partition in range(4)]
        stuck = asyncio.gather(*needy)
        await asyncio.sleep(0.5)
        others = [latencies(producer, 12, partition=partition) for partition in range(4, 8)]
        await asyncio.gather(stuck, *others, losing)
        cluster.fake.resume_broker(4)
        for partition in range(8):
            log = [float(value) for value in values(cluster.fake, "t", partition)[10:]]
            assert log == sorted(log)
            assert len(log) == len(set(log)) > 200
    used = {
        (request.broker, request.connection) for request in cluster.fake.requests_of(ApiKey.PRODUCE)
    }
    assert len(used) > 4, "there was no second connection to try it on"


@virtual_time
async def test_the_second_connection_goes_when_it_is_needed_no_more(
    producing: StartProducer,
) -> None:
    cluster = Cluster()
    async with producing(cluster.fake) as producer:
        await warm(producer)
        assert live_links(producer) == dict.fromkeys(range(4), 1)
        losing = asyncio.create_task(cluster.lose(kill))
        stuck = asyncio.gather(*(latencies(producer, 12, partition=p) for p in range(4)))
        await asyncio.sleep(0.5)
        await asyncio.gather(*(latencies(producer, 2, partition=p) for p in range(4, 8)))
        assert live_links(producer) == dict.fromkeys(range(4), 2)
        await stuck
        await losing
        for partition in range(8):
            await producer.send_and_wait("t", b"v", partition=partition)
        assert live_links(producer) == dict.fromkeys(range(4), 1)


def live_links(producer: Any) -> Counter[int]:
    """By broker, how many connections for Produce are up."""
    links = inspect(producer).router._links.items()
    return Counter(
        node
        for (node, purpose), link in links
        if purpose in ("produce", "side") and link.connection
    )


@virtual_time
async def test_with_a_replica_on_the_dead_broker_everywhere_any_partition_is_better_than_none(
    producing: StartProducer,
) -> None:
    """Three brokers, three replicas: nobody can do better than the fencing, but nobody hangs."""
    fake = one_topic(6, replication_factor=3, min_insync_replicas=2)
    fenced = 5.0

    def decide(_request: Any) -> Any:
        return delay_answer(fenced - now()) if now() < fenced else None

    async with producing(fake) as producer:
        await warm_any(producer)
        fake.stop_broker(2, elect=False)
        fake.control(ApiKey.PRODUCE, decide, keep=True)
        sending = asyncio.create_task(latencies(producer, 8))
        await asyncio.sleep(fenced - now())
        inspect(fake).broker_left(2)
        found = await sending
    assert max(found) < fenced + 1.5


async def warm_any(producer: Any) -> None:
    for _ in range(10):
        await asyncio.gather(
            *[producer.send_and_wait("t", b"warm", partition=partition) for partition in range(6)]
        )


@virtual_time
async def test_a_topic_that_was_created_anew_smaller_while_its_partitions_went_another_way(
    producing: StartProducer,
) -> None:
    cluster = Cluster()
    async with producing(cluster.fake) as producer:
        await warm(producer)
        losing = asyncio.create_task(cluster.lose(kill))
        old = [await producer.send("t", b"old", partition=partition) for partition in range(8)]
        await asyncio.sleep(0.5)
        assert inspect(producer).accumulator.topics["t"].side_lane_of
        losing.cancel()
        cluster.fake.delete_topic("t")
        cluster.fake.create_topic("t", assignments=[[3, 0], [2, 0], [0, 2]])
        inspect(producer).metadata.request_refresh("the test wants it")
        await asyncio.sleep(0.5)
        async with asyncio.timeout(1):
            for partition in range(3):
                await producer.send_and_wait("t", b"new", partition=partition)
        inspect(producer).fail_producer(KafkaError("the test has seen enough"))
        await asyncio.gather(*old, return_exceptions=True)


@pytest.mark.parametrize("partitioner", ["late", "kip794"])
@virtual_time
async def test_a_partition_under_steady_load_comes_back_to_its_lane(
    partitioner: str, producing: StartProducer
) -> None:
    """It has always something on the wire, unless it is held back for the change."""
    cluster = Cluster()
    cluster.fake.round_trip_s = 0.02
    async with producing(cluster.fake, linger_ms=0, partitioner=partitioner) as producer:
        await warm(producer)
        queue = inspect(producer).accumulator.topics["t"].queue(0)

        async def load() -> None:
            while True:
                await producer.send("t", b"v", partition=0)
                await asyncio.sleep(0.004)

        loading = asyncio.create_task(load())
        await asyncio.sleep(1)
        cluster.found_out = now() + 3
        kill(cluster.fake)
        await asyncio.sleep(2)
        assert queue.lane == queue.target_lane != queue.leader
        await asyncio.sleep(2)  # answers come again, so that broker 4 is as good as alive
        assert queue.lane == queue.target_lane == queue.leader
        loading.cancel()


@virtual_time
async def test_giving_up_a_connection_uses_up_nobodys_retries(producing: StartProducer) -> None:
    cluster = Cluster()
    async with producing(cluster.fake, retries=1) as producer:
        await warm(producer)
        losing = asyncio.create_task(cluster.lose(pause))
        await asyncio.sleep(0.001)
        needy = await producer.send("t", b"needy", partition=0)
        await asyncio.sleep(0.002)
        innocent = await producer.send("t", b"innocent", partition=4)
        cluster.fake.fail_produce("t", 0, _NOT_LEADER)
        cluster.fake.fail_produce("t", 4, _NOT_LEADER)
        await asyncio.gather(needy, innocent)
        await losing
        cluster.fake.resume_broker(4)


@virtual_time
async def test_a_dead_leader_gets_nothing_without_key_even_with_nothing_to_answer_for(
    producing: StartProducer,
) -> None:
    cluster = Cluster()
    cluster.fake.create_topic("led", assignments=[[4], [0], [1]])
    async with producing(cluster.fake) as producer:
        await warm(producer)
        for partition in range(3):
            await producer.send_and_wait("led", b"v", partition=partition)
        losing = asyncio.create_task(cluster.lose(pause))
        stuck = await producer.send("t", b"v", partition=0)  # by which broker 4 is found out
        await asyncio.sleep(0.5)
        for _ in range(50):
            sent = now()
            placed = await producer.send_and_wait("led", b"v")
            assert placed.partition != 0
            assert now() - sent < 0.1
        await asyncio.gather(stuck, losing)
        cluster.fake.resume_broker(4)


@virtual_time
async def test_a_transaction_takes_in_partitions_that_need_not_wait(
    producing: StartProducer,
) -> None:
    """Transactions v1: of the partitions that are part of it, those that need the dead broker do
    not count."""
    cluster = Cluster(transactions_v2=False)
    async with producing(cluster.fake, transactional_id="x") as producer:
        async with producer.transaction():
            await warm(producer)
        losing = asyncio.create_task(cluster.lose(kill))
        async with producer.transaction():
            stuck = [await producer.send("t", b"v", partition=partition) for partition in range(4)]
            await asyncio.sleep(0.5)
            found = await latencies(producer, 2)
            assert max(found) < 0.1
            await asyncio.gather(*stuck, losing)
        cluster.fake.start_broker(4)


@virtual_time
async def test_a_broker_far_away_is_not_dead(producing: StartProducer) -> None:
    """Followers that nothing was sent to before, behind 100 ms of network: it takes time to ask."""
    fake = FakeCluster(brokers=5)
    fake.create_topic("t", assignments=[[0, 1, 2], [0, 3, 4]])
    fake.round_trip_s = 0.1
    async with producing(fake) as producer:
        for _ in range(5):
            await producer.send_and_wait("t", b"v", partition=0)
        fake.control(ApiKey.PRODUCE, delay_answer(2.0))
        slow = await producer.send("t", b"v", partition=1)
        await producer.send("t", b"v", partition=0)
        health = inspect(producer).sender.liveness
        while not slow.done():
            await asyncio.sleep(0.01)
            assert not health.dead
