"""Topics that are deleted and created anew under the same name (KIP-516)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import DeliveryTimeoutError, PartitionOutOfRangeError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE_ANSWER, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer

BY_NAME = "kafka-4.0"
BY_ID = "kafka-4"


def anew(fake: FakeCluster, partitions: int, **topic: Any) -> None:
    fake.delete_topic("t")
    fake.create_topic("t", partitions, **topic)


@pytest.mark.parametrize("profile", [BY_ID, BY_NAME])
@pytest.mark.parametrize("absence", [0.0, 4.0])
@virtual_time
async def test_records_go_on_to_the_new_topic(
    profile: str, absence: float, producing: StartProducer
) -> None:
    """Each is in the old topic or in the new one, once and in order, also while there is none."""
    fake = FakeCluster(profile=profile, auto_create_topics=False)
    fake.create_topic("t", 3)
    async with producing(fake, linger_ms=0) as producer:
        for n in range(30):
            await producer.send_and_wait("t", b"%d" % n, partition=n % 3)
        before = [r.value for p in range(3) for r in fake.log("t", p)]
        fake.delete_topic("t")
        waiting = [await producer.send("t", b"%d" % n, partition=n % 3) for n in range(30, 60)]
        await asyncio.sleep(absence)
        fake.create_topic("t", 3)
        await asyncio.gather(*waiting)
        await producer.send_and_wait("t", b"60", partition=0)
        assert now() < absence + 3
    after = [[int(r.value or b"") for r in fake.log("t", p)] for p in range(3)]
    assert sorted(map(int, before)) == list(range(30))
    assert after == [[*range(30 + p, 60, 3), *([60] if p == 0 else [])] for p in range(3)]
    if profile == BY_ID:
        first = [fake.log("t", p)[0] for p in range(3)]
        assert [(r.producer_epoch, r.sequence) for r in first] == [(1, 0)] * 3


@virtual_time
async def test_what_was_on_its_way_to_the_old_topic_is_not_written_to_the_new(
    producing: StartProducer,
) -> None:
    """The answer is lost, the topic created anew: the record is sent to it once, under a number
    that it takes; and the old request, should it still come, is for a topic that is no more."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first")
        former = fake.topic_id("t")
        fake.control(ApiKey.PRODUCE, CLOSE_ANSWER)
        lost = await producer.send("t", b"lost")
        await asyncio.sleep(0)
        anew(fake, 1)
        assert (await lost).offset == 0
        assert (await producer.send_and_wait("t", b"next")).offset == 1
        asked = [r.message.topic_data[0].topic_id for r in fake.requests_of(ApiKey.PRODUCE)]
        assert asked[0] == asked[1] == former
        assert set(asked[-2:]) == {fake.topic_id("t")}
    assert [r.value for r in fake.log("t", 0)] == [b"lost", b"next"]


@virtual_time
async def test_nothing_overtakes_the_first_batch_in_the_new_topic(producing: StartProducer) -> None:
    """A log that does not know the producer takes whatever comes first (KAFKA-15591)."""
    fake = one_topic(1, brokers=1, round_trip_s=0.01)
    async with producing(fake, batch_size=0) as producer:
        await producer.send_and_wait("t", b"first")
        anew(fake, 1)
        fake.fail_produce("t", 0, 6, times=2)
        sent = [await producer.send("t", b"%d" % n) for n in range(10)]
        await asyncio.gather(*sent)
    assert [r.value for r in fake.log("t", 0)] == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("profile", [BY_ID, BY_NAME])
@virtual_time
async def test_fewer_partitions(profile: str, producing: StartProducer) -> None:
    """Records without key leave the partition that is no more, sent before or not; those for the
    partition itself wait for it, and are told so at last."""
    fake = FakeCluster(brokers=1, profile=profile)
    fake.create_topic("t", 6)
    async with producing(fake, linger_ms=0, delivery_timeout_ms=40_000) as producer:
        for n in range(12):
            await producer.send_and_wait("t", bytes(3000), partition=n % 6)
        fake.stall_broker(0)
        sent = [await producer.send("t", b"%d" % n) for n in range(6)]
        bound = await producer.send("t", b"bound", partition=5)
        await asyncio.sleep(0.1)
        anew(fake, 2)
        fake.resume_broker(0)
        places = await asyncio.gather(*sent)
        assert {place.partition for place in places} <= {0, 1}
        more = [await producer.send("t", b"%d" % n) for n in range(6, 26)]
        await asyncio.gather(*more)
        assert now() < 5
        (warning,) = (await producer.healthy()).warnings
        assert warning.startswith("records wait for partition 5 of topic t, which the topic no ")
        assert "<BrokerLane to broker 0 HEALTHY in_flight=0>" in repr(producer)
        with pytest.raises(DeliveryTimeoutError, match="which the topic no longer has"):
            await bound
    written = [int(r.value or b"") for p in range(2) for r in fake.log("t", p)]
    assert sorted(written) == list(range(26))


@virtual_time
async def test_a_partition_that_comes_back(producing: StartProducer) -> None:
    """What waited for it is written there."""
    fake = one_topic(brokers=1)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"v", partition=2)
        anew(fake, 1)
        waiting = await producer.send("t", b"waiting", partition=2)
        await asyncio.sleep(5)
        assert not waiting.done()
        fake.add_partitions("t", 3)
        inspect(producer).metadata.request_refresh("any")
        assert (await waiting).offset == 0


@virtual_time
async def test_a_broker_that_still_tells_of_the_old_topic_is_not_believed(
    producing: StartProducer,
) -> None:
    """After the new topic is known: going back and forth would number records twice."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"v")
        stale = fake.topic_id("t")
        anew(fake, 1)
        await producer.send_and_wait("t", b"1")
        told = {
            "brokers": [{"node_id": 0, "host": "fake-0", "port": 9092, "rack": None}],
            "cluster_id": "fake-cluster",
            "controller_id": 0,
            "topics": [
                {
                    "error_code": 0,
                    "name": "t",
                    "topic_id": stale,
                    "is_internal": False,
                    "partitions": [
                        {
                            "error_code": 0,
                            "partition_index": 0,
                            "leader_id": 0,
                            "leader_epoch": 9,
                            "replica_nodes": [0],
                            "isr_nodes": [0],
                            "offline_replicas": [],
                        }
                    ],
                }
            ],
        }
        lag = fake.control(ApiKey.METADATA, told)
        inspect(producer).metadata.request_refresh("any")
        await asyncio.sleep(1)
        assert lag.hits == 1
        await producer.send_and_wait("t", b"2")
    assert [(r.value, r.producer_epoch) for r in fake.log("t", 0)] == [(b"1", 1), (b"2", 1)]


@virtual_time
async def test_without_idempotence_too(producing: StartProducer) -> None:
    fake = one_topic(2, brokers=1)
    async with producing(fake, linger_ms=0, enable_idempotence=False, acks=1) as producer:
        await producer.send_and_wait("t", b"v")
        anew(fake, 2)
        await asyncio.gather(*[await producer.send("t", b"v", partition=1) for _ in range(5)])
    assert len(fake.log("t", 1)) == 5


@virtual_time
async def test_the_new_topic_takes_larger_batches(producing: StartProducer) -> None:
    """What was learnt of the old one's max.message.bytes is void."""
    fake = one_topic(1, brokers=1, max_message_bytes=20_000)
    async with producing(fake, partitioner="late", linger_ms=0) as producer:
        fake.stall_broker(0)
        sent = [producer.send_nowait("t", bytes(1000)) for _ in range(50)]
        fake.resume_broker(0)
        await asyncio.gather(*sent)
        assert inspect(producer).accumulator.topic("t").batch_limit.at(now()) < 30_000
        anew(fake, 1)
        await producer.send_and_wait("t", b"v")
        assert inspect(producer).accumulator.topic("t").batch_limit.at(now()) > 1_000_000


@pytest.mark.parametrize("partitioner", ["late", "kip794", "sticky", "round-robin", "random"])
@virtual_time
async def test_records_without_key_leave_a_partition_that_is_gone(
    partitioner: str, producing: StartProducer
) -> None:
    fake = FakeCluster(auto_create_topics=False)
    fake.create_topic("t", 6)
    options = {"metadata_max_age_ms": 2000, "batch_size": 100, "delivery_timeout_ms": 40_000}
    async with producing(fake, partitioner=partitioner, **options) as producer:
        await producer.send_and_wait("t", b"0")
        for broker in range(3):
            fake.stall_broker(broker)
        free = [producer.send_nowait("t", bytes(100)) for _ in range(40)]
        await asyncio.sleep(0.1)
        anew(fake, 2)
        for broker in range(3):
            fake.resume_broker(broker)
        began = now()
        await asyncio.gather(*free)
        assert now() - began < 1
    assert sum(len(fake.log("t", p)) for p in range(2)) == 40


@pytest.mark.parametrize("partitioner", ["late", "kip794", "sticky", "round-robin", "random"])
@virtual_time
async def test_a_record_with_its_partition_waits_for_it(
    partitioner: str, producing: StartProducer
) -> None:
    """So does the rest of its batch."""
    fake = FakeCluster(auto_create_topics=False)
    fake.create_topic("t", 6)
    options = {"metadata_max_age_ms": 2000, "linger_ms": 500}
    async with producing(fake, partitioner=partitioner, **options) as producer:
        await producer.send_and_wait("t", b"0")
        some = [producer.send_nowait("t", b"a") for _ in range(20)]
        pinned = [producer.send_nowait("t", b"%d" % p, partition=p) for p in range(6)]
        some += [producer.send_nowait("t", b"a") for _ in range(20)]
        anew(fake, 2)
        await asyncio.sleep(10)
        assert [delivery.done() for delivery in pinned] == [True] * 2 + [False] * 4
        anew(fake, 6)
        await asyncio.gather(*pinned, *some)
    assert all(b"%d" % p in [r.value for r in fake.log("t", p)] for p in range(2, 6))


@pytest.mark.parametrize("partitioner", ["sticky", "round-robin"])
@virtual_time
async def test_a_partitioner_forgets_topics(partitioner: str, producing: StartProducer) -> None:
    fake = one_topic(1)
    options = {"metadata_max_idle_ms": 5000, "metadata_max_age_ms": 2000}
    async with producing(fake, partitioner=partitioner, **options) as producer:
        await producer.send_and_wait("t", b"0")
        accumulator = inspect(producer).accumulator
        before: Any = accumulator.topics["t"].strategy
        await asyncio.sleep(20)
        assert not accumulator.topics
        await producer.send_and_wait("t", b"1")
        after: Any = accumulator.topics["t"].strategy
        assert before._partition.__self__ is not after._partition.__self__


@pytest.mark.parametrize("partitions", [8, 3])
@virtual_time
async def test_a_partition_is_awaited_while_its_topic_is_created_again(
    partitions: int, producing: StartProducer
) -> None:
    fake = FakeCluster(auto_create_topics=False)
    fake.create_topic("t", 3)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"0")
        fake.delete_topic("t")
        sending = asyncio.create_task(producer.send_and_wait("t", b"7", partition=7))
        await asyncio.sleep(2)
        assert not sending.done()
        fake.create_topic("t", partitions)
        if partitions > 7:
            assert (await sending).offset == 0
        else:
            with pytest.raises(PartitionOutOfRangeError, match="has 3 partitions"):
                await sending
        assert now() < 4
