"""Whole producers under each setting of ``partitioner`` that asks for every record (KIP-480), and
under an application's own."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BufferFullError, PartitionerError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.murmur2 import partition_for_key
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient import ClusterView, LoadView
    from tests.producer.support import StartProducer

NAMES = ["sticky", "uniform-sticky", "round-robin", "random"]
KEYS = [b"%d" % n for n in range(40)]


async def burst(producer: Any, count: int, key: bytes | None = None) -> list[int]:
    """Where records sent at once land."""
    deliveries = [producer.send_nowait("t", b"%d" % n, key) for n in range(count)]
    return [(await delivery).partition for delivery in deliveries]


async def spaced(producer: Any, count: int) -> list[int]:
    """Where records land of which each is sent after the one before was acknowledged."""
    return [(await producer.send_and_wait("t", b"%d" % n)).partition for n in range(count)]


@virtual_time
async def test_sticky_moves_on_with_each_batch(producing: StartProducer) -> None:
    """KIP-480: a burst stays together, the next one goes elsewhere, spaced records never stay."""
    fake = one_topic(5)
    async with producing(fake, partitioner="sticky") as producer:
        first, second = set(await burst(producer, 50)), set(await burst(producer, 50))
        assert len(first) == len(second) == 1
        assert first != second
        partitions = await spaced(producer, 40)
        assert all(before != after for before, after in pairwise(partitions))
        assert set(partitions) == set(range(5))
        keyed = {key: (await burst(producer, 1, key))[0] for key in KEYS}
        assert keyed == {key: partition_for_key(key, 5) for key in KEYS}


@virtual_time
async def test_uniform_sticky_ignores_keys(producing: StartProducer) -> None:
    async with producing(one_topic(5), partitioner="uniform-sticky") as producer:
        deliveries = [producer.send_nowait("t", b"v", key) for key in KEYS]
        assert len({(await delivery).partition for delivery in deliveries}) == 1
        partitions = [(await producer.send_and_wait("t", b"v", b"same")).partition for _ in KEYS]
        assert all(before != after for before, after in pairwise(partitions))


@pytest.mark.parametrize("partitions", [5, 6])
@virtual_time
async def test_round_robin_takes_every_partition_in_turn(
    partitions: int, producing: StartProducer
) -> None:
    """KAFKA-9965 is not there: with an even number of partitions every one is used as well."""
    fake = one_topic(partitions)
    async with producing(fake, partitioner="round-robin", linger_ms=0) as producer:
        expected = list(range(partitions))
        assert await spaced(producer, 2 * partitions) == expected * 2
        assert await burst(producer, 60, b"key") == expected * (60 // partitions)


@virtual_time
async def test_random_goes_everywhere_but_keys_stay(producing: StartProducer) -> None:
    async with producing(one_topic(5), partitioner="random") as producer:
        counts = Counter(await burst(producer, 1000))
        assert all(counts[p] == pytest.approx(200, rel=0.25) for p in range(5))
        assert set(await burst(producer, 10, b"key")) == {partition_for_key(b"key", 5)}
    ignoring = {"partitioner": "random", "partitioner_ignore_keys": True}
    async with producing(one_topic(5), **ignoring) as producer:
        assert len(set(await burst(producer, 50, b"key"))) == 5


@pytest.mark.parametrize("name", NAMES)
@virtual_time
async def test_partitions_without_a_leader_are_left_to_the_keys(
    name: str, producing: StartProducer
) -> None:
    fake = one_topic(5)
    for partition in (1, 3):
        fake.move_leader("t", partition, -1)
    async with producing(fake, partitioner=name, linger_ms=0) as producer:
        partitions = await burst(producer, 30) + await spaced(producer, 30)
    assert set(partitions) == {0, 2, 4}


@pytest.mark.parametrize("name", NAMES)
@virtual_time
async def test_a_broker_that_dies_costs_no_record(name: str, producing: StartProducer) -> None:
    fake = one_topic(6, replication_factor=3)
    async with producing(fake, partitioner=name, batch_size=500) as producer:
        deliveries = []
        for n in range(600):
            deliveries.append(producer.send_nowait("t", b"%04d" % n))
            await asyncio.sleep(0.001)
            if n == 200:
                fake.stop_broker(1)
        assert len(set(await asyncio.gather(*deliveries))) == 600
    logged = [record.value for p in range(6) for record in fake.log("t", p)]
    assert sorted(logged) == [b"%04d" % n for n in range(600)]


@pytest.mark.parametrize("name", NAMES)
@virtual_time
async def test_a_topic_made_anew_with_fewer_partitions(name: str, producing: StartProducer) -> None:
    """What was remembered of the old one is not used any more."""
    fake = one_topic(9)
    async with producing(fake, partitioner=name, metadata_max_age_ms=200) as producer:
        await spaced(producer, 20)
        fake.delete_topic("t")
        fake.create_topic("t", 2)
        await asyncio.sleep(1)
        assert set(await spaced(producer, 40)) == {0, 1}


# --- an application's own ----------------------------------------------------------------------


class Mine:
    """Sends a record where its value says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes | None, bytes | None]] = []

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        cluster: ClusterView,
        load: LoadView,
    ) -> int:
        self.asked.append((topic, key, value))
        assert cluster.topics[topic].partition_count == 5
        assert load.queued_batches(topic, 0) >= 0
        return int(value or b"")


@virtual_time
async def test_an_object_is_asked_for_every_record_once(producing: StartProducer) -> None:
    """Keyed or not, also when the metadata had to be waited for; never for explicit ones."""
    fake, mine = one_topic(5), Mine()
    async with producing(fake, partitioner=mine, value_serializer=str.encode) as producer:
        early = producer.send_nowait("t", "4", b"key")
        assert mine.asked == []
        metadata = await producer.send_and_wait("t", "2")
        explicit = await producer.send_and_wait("t", "x", partition=1)
        assert ((await early).partition, metadata.partition, explicit.partition) == (4, 2, 1)
    assert mine.asked == [("t", b"key", b"4"), ("t", None, b"2")]


@virtual_time
async def test_a_bad_answer_costs_its_record_alone(producing: StartProducer) -> None:
    """At once from send and send_nowait; through the delivery where nothing could be asked yet."""
    fake, mine = one_topic(5), Mine()
    async with producing(fake, partitioner=mine) as producer:
        bad, good = producer.send_nowait("t", b"7"), [producer.send_nowait("t", b"3")]
        with pytest.raises(PartitionerError, match="Mine gave 7, not one of the partitions 0 to 4"):
            await bad
        for send in (producer.send, producer.send_nowait):
            with pytest.raises(PartitionerError, match="Mine gave -1"):
                await send("t", b"-1")
            with pytest.raises(PartitionerError, match="Mine raised ValueError") as caught:
                await send("t", b"one")
            assert isinstance(caught.value.__cause__, ValueError)
            good.append(producer.send_nowait("t", b"3"))
        assert {(await delivery).partition for delivery in good} == {3}
        assert len(fake.log("t", 3)) == 3


async def filled(producer: Any) -> int:
    """How many records fit into the buffer."""
    for sent in range(1000):
        try:
            producer.send_nowait("t", b"1", headers={"h": bytes(900)})
        except BufferFullError:
            return sent
    raise AssertionError("memory is not bounded")


@virtual_time
async def test_records_that_wait_for_memory_are_asked_about_once(producing: StartProducer) -> None:
    """Asked when there is room; a record that was refused for want of room was not asked about."""
    fake, mine = one_topic(5), Mine()
    options = {"partitioner": mine, "buffer_memory": 20_000, "batch_size": 4000, "acks": 1}
    async with producing(fake, enable_idempotence=False, **options) as producer:
        await producer.send_and_wait("t", b"0")
        for node in range(3):
            fake.stall_broker(node)
        sent = 1 + await filled(producer)
        assert len(mine.asked) == sent
        waiting = [
            asyncio.create_task(producer.send_and_wait("t", b"2", headers={"h": bytes(900)}))
            for _ in range(5)
        ]
        await asyncio.sleep(1)
        assert len(mine.asked) == sent
        for node in range(3):
            fake.resume_broker(node)
        assert {m.partition for m in await asyncio.gather(*waiting)} == {2}
        assert len(mine.asked) == sent + 5


class LeastQueued:
    """What a load view is for: the partition whose broker owes the fewest answers, then the one
    with the fewest bytes queued."""

    def partition(
        self, topic: str, _key: object, _value: object, cluster: ClusterView, load: LoadView
    ) -> int:
        view = cluster.topics[topic]

        def busy(partition: int) -> tuple[float, int, int]:
            leader = view.partitions[partition].leader
            return (
                load.oldest_in_flight_s(leader),
                load.in_flight_requests(leader),
                load.queued_bytes(topic, partition),
            )

        return min(view.available, key=busy)


@virtual_time
async def test_an_object_can_choose_by_the_live_load(producing: StartProducer) -> None:
    fake = one_topic(3)
    fake.delay_produce(0, 0.05)
    async with producing(fake, partitioner=LeastQueued(), linger_ms=1) as producer:
        deliveries = []
        for _ in range(1000):
            deliveries.append(await producer.send("t", bytes(100)))
            await asyncio.sleep(0.001)
        counts = Counter([(await delivery).partition for delivery in deliveries])
    assert counts[0] < 0.2 * 1000
    assert counts.total() == 1000


@virtual_time
async def test_the_load_view_tells_what_the_snapshot_tells(producing: StartProducer) -> None:
    fake = one_topic(3)
    views: list[LoadView] = []

    class Looker:
        def partition(self, *question: Any) -> int:
            views.append(question[4])
            return 0

    async with producing(fake, partitioner=Looker(), linger_ms=0) as producer:
        assert await spaced(producer, 3) == [0, 0, 0]
        load = views[0]
        latency = load.recent_latency_s(0)
        assert latency is not None
        assert latency >= 0
        assert load.recent_latency_s(1) is None
        assert (load.window(0), load.window(7)) == (5, 5)
        fake.stall_broker(0)
        deliveries = []
        for _ in range(8):
            deliveries.append(producer.send_nowait("t", b"v"))
            await asyncio.sleep(0.1)
        snapshot = load.snapshot()
        assert snapshot == producer.load()
        broker, partition = snapshot.brokers[0], snapshot.partitions[0]
        assert load.in_flight_requests(0) == broker.in_flight_requests == 5
        assert load.oldest_in_flight_s(0) == broker.oldest_in_flight_s > 0.5
        assert load.in_flight_batches("t", 0) == partition.in_flight_batches == 5
        assert load.queued_batches("t", 0) == partition.queued_batches > 0
        assert load.queued_bytes("t", 0) == partition.queued_bytes > 0
        nothing: Sequence[float] = (
            load.queued_batches("t", 7),
            load.queued_bytes("u", 0),
            load.in_flight_batches("u", 0),
            load.in_flight_requests(9),
            load.oldest_in_flight_s(9),
        )
        assert set(nothing) == {0}
        fake.resume_broker(0)
        await asyncio.gather(*deliveries)
