"""Topics that come and go under a producer: forgotten as idle, created anew, grown, missing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import KafkaError, MetadataTimeoutError, PartitionOutOfRangeError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.murmur2 import partition_for_key
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer


async def delivered(deliveries: list[Any]) -> int:
    """How many of them were."""
    outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    return sum(not isinstance(outcome, KafkaError) for outcome in outcomes)


# --- idle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitioner", ["kip794", "late"])
@virtual_time
async def test_an_outage_longer_than_the_idle_time_ends(
    partitioner: str, producing: StartProducer
) -> None:
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
async def test_a_topic_taken_up_while_it_is_dropped_is_known_again(
    producing: StartProducer,
) -> None:
    """The record goes to a broker that has just lost the partition; only metadata can tell."""
    fake = FakeCluster(brokers=2)
    fake.create_topic("t", 1, assignments=[[1, 0]])
    async with producing(fake, metadata_max_idle_ms=5000) as producer:
        await producer.send_and_wait("t", b"before")
        await asyncio.sleep(10)
        fake.round_trip_s = 0.5
        inspect(producer).metadata.request_refresh("any")
        await asyncio.sleep(0.25)
        delivery = producer.send_nowait("t", b"during")
        fake.stop_broker(1)
        await delivery
        assert now() < 20


@virtual_time
async def test_a_topic_is_kept_while_send_waits_for_room(producing: StartProducer) -> None:
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
        inspect(producer).metadata.request_refresh("any")
        await asyncio.sleep(1)
        fake.resume_broker(0)
        assert await delivered([first, await waiting]) == 2


TOPICS = 60


async def used(fake: FakeCluster, producer: Any, n: int) -> None:
    """A record for a topic, a while after the one before, so that metadata is renewed."""
    await producer.send_and_wait(f"topic-{n}", b"%d" % n, partition=0)
    await asyncio.sleep(1)


@pytest.mark.parametrize("idempotent", [True, False])
@virtual_time
async def test_nothing_is_kept_of_topics_that_are_not_used_any_more(
    producing: StartProducer, idempotent: bool
) -> None:
    """Neither buffers nor metrics; and a topic that comes back goes on without a gap."""
    fake = FakeCluster(brokers=2, partitions=2)
    options = {
        "metadata_max_idle_ms": 5000,
        "metadata_max_age_ms": 5000,
        "enable_idempotence": idempotent,
        "linger_ms": 0,
        "max_block_ms": 1000,
    }
    async with producing(fake, **options) as producer:
        core = inspect(producer)
        for n in range(TOPICS):
            await used(fake, producer, n)
            for kept in (
                core.accumulator.topics,
                core.accumulator.append_slots,
                core.metadata.view.topics,
            ):
                assert len(kept) <= 15
        assert len(producer.metrics().topics) <= 15
        epoch = core.accumulator.identity.epoch
        for n in range(0, TOPICS, 10):
            await used(fake, producer, n)
        assert core.accumulator.identity.epoch <= epoch + 10 if idempotent else True
        inspect(fake).auto_create_topics = False
        for n in range(20):  # nor of topics that there are not
            with pytest.raises(MetadataTimeoutError):
                await producer.send_and_wait(f"missing-{n}", b"x")
            assert len(core.accumulator.topics) <= 15
    for n in range(TOPICS):
        records = [r.value for p in range(2) for r in fake.log(f"topic-{n}", p)]
        assert records == [b"%d" % n] * (1 if n % 10 else 2)


@pytest.mark.parametrize("v2", [True, False])
@virtual_time
async def test_transactions_on_topics_that_come_back(producing: StartProducer, v2: bool) -> None:
    """With v1 the epoch is the coordinator's to raise: sequences are kept while it is the same."""
    fake = FakeCluster(brokers=2, partitions=2, transactions_v2=v2)
    options = {
        "metadata_max_idle_ms": 5000,
        "metadata_max_age_ms": 5000,
        "linger_ms": 0,
        "transactional_id": "tx",
    }
    async with producing(fake, **options) as producer:
        for n in [*range(40), *range(40)]:
            async with producer.transaction():
                await used(fake, producer, n)
        kept = inspect(producer).accumulator.topics
        assert len(kept) <= 15 if v2 else len(kept) == 40
        await producer.begin_transaction()
        await producer.send_and_wait("topic-0", b"void")
        await asyncio.sleep(20)
        await producer.send_and_wait("topic-0", b"void")
        await producer.abort_transaction()
    for n in range(40):
        records = [r.value for p in range(2) for r in fake.committed_log(f"topic-{n}", p)]
        assert records == [b"%d" % n] * 2


@virtual_time
async def test_a_topic_whose_limit_grows_gets_large_batches_again(producing: StartProducer) -> None:
    """What was learnt from MESSAGE_TOO_LARGE does not hold for ever."""
    fake = one_topic(1, brokers=1, max_message_bytes=20_000)

    async def burst(producer: Any) -> int:
        """How large the largest batch was."""
        fake.stall_broker(0)
        seen = len(fake.requests)
        sent = [producer.send_nowait("t", bytes(1000)) for _ in range(200)]
        fake.resume_broker(0)
        await asyncio.gather(*sent)
        produced = [r for r in fake.requests[seen:] if r.api_key == ApiKey.PRODUCE]
        return max(len(data) for r in produced for _, _, data in r.batches)

    async with producing(fake, linger_ms=0, metadata_max_idle_ms=10**8) as producer:
        assert await burst(producer) > 100_000
        assert await burst(producer) < 40_000, "learnt"
        fake.configure_topic("t", max_message_bytes=1_000_000)
        await asyncio.sleep(3600)
        assert await burst(producer) > 100_000


# --- grown --------------------------------------------------------------------------------------


@virtual_time
async def test_records_without_partition_go_to_new_ones_too(producing: StartProducer) -> None:
    """Late binding: what was sent before the topic grew may be bound to a partition made since."""
    fake = one_topic(2, brokers=2)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"v")
        fake.add_partitions("t", 6)
        inspect(producer).metadata.request_refresh("any")
        await asyncio.sleep(1)
        partitions = {(await producer.send_and_wait("t", b"v")).partition for _ in range(12)}
        assert partitions == set(range(6))


@virtual_time
async def test_a_partition_not_known_yet_is_asked_for(producing: StartProducer) -> None:
    """send_nowait cannot wait for it, but the next call goes well."""
    fake = one_topic(1, brokers=1)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"v")
        fake.add_partitions("t", 2)
        with pytest.raises(PartitionOutOfRangeError, match="grown"):
            producer.send_nowait("t", b"v", partition=1)
        await asyncio.sleep(1)
        assert await delivered([producer.send_nowait("t", b"v", partition=1)]) == 1


@pytest.mark.parametrize("partitioner", ["kip794", "late"])
@virtual_time
async def test_records_that_wait_while_the_topic_grows(
    partitioner: str, producing: StartProducer
) -> None:
    """Keyed ones stay where their key was counted, in their order; those sent later go by the new
    count."""
    fake = one_topic(2, brokers=1)
    async with producing(fake, linger_ms=0, partitioner=partitioner) as producer:
        await producer.send_and_wait("t", b"v", key=b"k")
        fake.stall_broker(0)
        waiting = [await producer.send("t", b"%d" % n, key=b"k%d" % (n % 5)) for n in range(50)]
        waiting += [await producer.send("t", b"%d" % n) for n in range(50, 60)]
        fake.add_partitions("t", 7)
        fake.resume_broker(0)
        inspect(producer).metadata.request_refresh("any")
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


@virtual_time
async def test_known_partitions_are_looked_up_without_a_request() -> None:
    """In any state of the producer, and where no task runs."""
    fake = FakeCluster(auto_create_topics=True)
    fake.create_topic("t", 3)
    producer = Producer(fake.bootstrap, dialer=fake)
    assert producer.known_partitions("t") is None
    await producer.start()
    await producer.send_and_wait("t", b"v")
    requests = len(fake.requests)
    for unknown in ("typo", "not a name", ""):
        assert producer.known_partitions(unknown) is None
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: found.set_result(producer.known_partitions("t")))
    assert await found == await producer.partitions_for("t")
    await asyncio.sleep(10)
    assert len(fake.requests) == requests
    await producer.stop()
    assert producer.known_partitions("t") == found.result()
