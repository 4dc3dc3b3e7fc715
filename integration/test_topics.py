"""Topics that change under load, and brokers that refuse: what becomes of each record."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from kafkaclient import Producer
from kafkaclient.errors import BrokerError, DeliveryTimeoutError, KafkaError
from kafkaclient.testing.inspect import inspect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkaclient.types import RecordMetadata

pytestmark = [pytest.mark.timeout(180), pytest.mark.local_cluster]

_RATE = 1000


class Load:
    """Keyed, explicit and unkeyed records at a steady rate; when each was sent and acknowledged."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self.sent_at: dict[bytes, float] = {}
        self.acknowledged: dict[bytes, tuple[RecordMetadata, float]] = {}
        self.failed: list[KafkaError] = []

    async def run(self, seconds: float) -> None:
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds:
            while len(self.sent_at) < elapsed * _RATE:
                await self._send(len(self.sent_at))
            await asyncio.sleep(0.002)
        await self._producer.flush()
        await asyncio.sleep(0)

    async def _send(self, n: int) -> None:
        key = b"k%d" % (n % 30) if n % 3 == 0 else None
        partition = n % 3 if n % 3 == 1 else None
        source = key or (b"p" if partition is not None else b"-")
        value = b"%s %d" % (source, n)
        delivery = await self._producer.send(self._topic, value, key, partition=partition)
        self.sent_at[value] = time.monotonic()
        delivery.add_done_callback(lambda d: self._done(value, d))

    def _done(self, value: bytes, delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[value] = (delivery.result(), time.monotonic())

    def check(self, read: list) -> set[bytes]:
        """What was read is there once, where it was said to be, in order; the values read."""
        assert not self.failed, (len(self.failed), str(self.failed[0]))
        assert self.acknowledged.keys() == self.sent_at.keys()
        values = [record.value for record in read]
        assert len(values) == len(set(values)), "duplicated"
        last: dict[tuple[bytes, int], int] = {}
        for record in read:  # by partition and offset
            place, _ = self.acknowledged[record.value]
            assert place.partition == record.partition
            assert place.offset in (record.offset, -1)
            source, n = record.value.split()
            if source != b"-":
                assert int(n) > last.get((source, record.partition), -1), f"reordered: {record}"
                last[source, record.partition] = int(n)
        return set(values)


@pytest.fixture
async def admin(kafka_cluster):
    client = AIOKafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap)
    await client.start()
    yield client
    await client.close()


async def _during(load: Load, seconds: float, change: Callable[[], Awaitable[None]]) -> None:
    running = asyncio.create_task(load.run(seconds))
    try:
        await asyncio.sleep(1)
        await change()
        await running
    finally:
        running.cancel()


@pytest.mark.parametrize("partitions", [6, 3])
async def test_a_topic_deleted_and_created_anew_under_load(
    kafka_cluster, topic, create_topic, read_topic, admin, partitions
):
    """KIP-516: what was not written to the old topic is written to the new one, once."""
    await create_topic(topic, 6, 3)
    absent: list[float] = []

    async def replace() -> None:
        absent.append(time.monotonic())
        await admin.delete_topics([topic])
        await asyncio.sleep(1)
        await create_topic(topic, partitions, 3)
        absent.append(time.monotonic())

    async with Producer(kafka_cluster.bootstrap, allow_auto_create_topics=False) as producer:
        load = Load(producer, topic)
        if partitions < 6:  # what has a key waits for the partition that its key had
            load._send = _only_unkeyed(load)
        await _during(load, 4, replace)
    written = load.check(await read_topic(topic))
    deleted, created = absent
    for value, (_, at) in load.acknowledged.items():
        assert value in written or at < created, "acknowledged by neither topic"
    assert all(value in written for value, at in load.sent_at.items() if at > created)
    assert any(deleted < load.sent_at[value] < created for value in written), "nothing waited"


def _only_unkeyed(load: Load) -> Callable[[int], Awaitable[None]]:
    send = Load._send
    return lambda n: send(load, 3 * n + 2)


async def test_a_topic_that_grows_under_load(kafka_cluster, topic, create_topic, read_topic, admin):
    await create_topic(topic, 3, 3)

    async def grow() -> None:
        await admin.create_partitions({topic: NewPartitions(12)})

    async with Producer(kafka_cluster.bootstrap, metadata_max_age_ms=500) as producer:
        load = Load(producer, topic)
        await _during(load, 4, grow)
    read = await read_topic(topic)
    assert load.check(read) == load.sent_at.keys()
    by_kind = defaultdict(set)
    for record in read:
        by_kind[record.key is None].add(record.partition)
    assert max(by_kind[True]) > 2
    assert max(by_kind[False]) > 2


async def test_records_refused_by_themselves(kafka_cluster, topic, create_topic, read_topic):
    """KIP-467, KIP-937: the guilty ones have the broker's word; their company is written."""
    limits = {
        "message.timestamp.before.max.ms": "3600000",
        "message.timestamp.after.max.ms": "3600000",
    }
    await create_topic(topic, 1, config=limits)
    now_ms = int(time.time() * 1000)
    stamps = {2: now_ms - 86_400_000, 5: now_ms + 86_400_000}
    async with Producer(kafka_cluster.bootstrap, linger_ms=50) as producer:
        sent = [
            producer.send_nowait(topic, b"%d" % n, timestamp_ms=stamps.get(n, now_ms))
            for n in range(8)
        ]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        await producer.send_and_wait(topic, b"after")
    for n, stamp in stamps.items():
        assert isinstance(outcomes[n], BrokerError)
        assert outcomes[n].name == "INVALID_TIMESTAMP"
        assert str(stamp) in str(outcomes[n])
    assert [outcomes[n].offset for n in (0, 1, 3, 4, 6, 7)] == list(range(6))
    values = [record.value for record in await read_topic(topic)]
    assert values == [b"0", b"1", b"3", b"4", b"6", b"7", b"after"]


async def test_a_compacted_topic_refuses_what_has_no_key(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 1, config={"cleanup.policy": "compact"})
    async with Producer(kafka_cluster.bootstrap, linger_ms=50) as producer:
        sent = [
            producer.send_nowait(topic, b"%d" % n, b"k%d" % n if n % 2 else None, partition=0)
            for n in range(6)
        ]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert [error.name for error in refused] == ["INVALID_RECORD"] * 3
    assert all("key" in str(error) for error in refused)
    assert [r.value for r in await read_topic(topic)] == [b"1", b"3", b"5"]


async def test_sequences_wrap_on_a_real_broker(kafka_cluster, topic, create_topic, read_topic):
    """S2: a log that does not know the producer takes any number first: one before the end."""
    await create_topic(topic, 1)
    async with Producer(kafka_cluster.proxied_bootstrap, linger_ms=10) as producer:
        await producer.send_and_wait(topic + "-other", b"v")  # now it has its id
        await producer.partitions_for(topic)
        accumulator = inspect(producer).accumulator
        identity, sequence = accumulator.identity, accumulator.topic(topic).queue(0).sequence
        sequence.producer_id, sequence.epoch = identity.producer_id, identity.epoch
        sequence.next = 2**31 - 6
        for n in range(8):
            if n in (1, 3):  # what is sent again across the end is known again
                for broker in kafka_cluster.brokers:
                    await kafka_cluster.proxy(broker).cut_after()
            await asyncio.gather(*[producer.send_nowait(topic, b"%d" % n) for _ in range(4)])
        assert (sequence.next, identity.epoch) == (26, 0)
    assert [r.value for r in await read_topic(topic)] == [b"%d" % (n // 4) for n in range(32)]


async def note_errors(producer: Producer, codes: set[int | None]) -> None:
    """Why its batches wait to be sent again."""
    while True:
        for batch in inspect(producer).accumulator.incomplete:
            if batch.last_error is not None:
                codes.add(batch.last_error.code)
        await asyncio.sleep(0.01)


@pytest.mark.full
async def test_too_few_replicas(kafka_cluster, topic, create_topic, read_topic):
    """S3: a follower stands still: its leader waits for it in vain, and has too few in-sync
    replicas until it is back. Each record is written once, and whoever gives up is told of
    min.insync.replicas and the time. (Since 4.0 an append without enough replicas is answered by
    a timeout, not by NOT_ENOUGH_REPLICAS_AFTER_APPEND: KIP-966.)"""
    await create_topic(topic, 1, 3, {"min.insync.replicas": "3"})
    codes: set[int | None] = set()
    options = {"linger_ms": 0, "request_timeout_ms": 3000}
    async with (
        Producer(kafka_cluster.bootstrap, **options) as patient,
        Producer(kafka_cluster.bootstrap, delivery_timeout_ms=14_000, **options) as impatient,
    ):
        for producer in (patient, impatient):
            await producer.send_and_wait(topic, b"first")
        seen = asyncio.create_task(note_errors(patient, codes))
        leader = inspect(patient).metadata.view.topics[topic].partitions[0].leader
        follower = next(n for n in reversed(kafka_cluster.brokers) if n != leader)
        await kafka_cluster.pause(follower)
        try:
            delivered = await patient.send(topic, b"patient")
            with pytest.raises(DeliveryTimeoutError, match=r"min\.insync\.replicas") as caught:
                await (await impatient.send(topic, b"impatient"))
            assert "after 14." in str(caught.value)
            assert not delivered.done()
            await kafka_cluster.resume(follower)
            await delivered
        finally:
            seen.cancel()
            await kafka_cluster.heal()
    assert 19 in codes
    assert codes <= {None, 7, 19, 20}
    values = [record.value for record in await read_topic(topic)]
    assert values.count(b"patient") == 1
    assert values.count(b"impatient") <= int(caught.value.maybe_written)
