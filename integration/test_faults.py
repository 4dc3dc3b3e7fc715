"""Brokers that are killed, paused, cut off or gone: nothing lost, duplicated or reordered."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from kafkaclient import Hooks, Producer
from kafkaclient.errors import (
    BufferFullError,
    DeliveryTimeoutError,
    FlushTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
)
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = [pytest.mark.timeout(180), pytest.mark.local_cluster]

_RATE = 1500
_REPLICATED = {"min.insync.replicas": "2"}
_TURN_S = 40.0  # brokers that were all paused have to find a controller first


class Load:
    """Keyed, explicit and unkeyed records at a steady rate, and what became of each."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.failed: list[KafkaError] = []
        self.sent = 0
        self._producer = producer
        self._topic = topic

    async def run(self, seconds: float) -> None:
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds:
            while self.sent < elapsed * _RATE:
                await self._send(self.sent)
                self.sent += 1
            await asyncio.sleep(0.002)
        await self._producer.flush()
        await asyncio.sleep(0)

    async def _send(self, n: int) -> None:
        kind = n % 3
        key = b"k%d" % (n % 30) if kind == 0 else None
        partition = n % 6 if kind == 1 else None
        source = key or (b"p%d" % partition if partition is not None else b"-")
        value = b"%s %d" % (source, n)
        delivery = await self._producer.send(self._topic, value, key, partition=partition)
        delivery.add_done_callback(lambda d: self._done(value, d))

    def _done(self, value: bytes, delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self.failed.append(error)
        else:
            place = delivery.result()
            self.acknowledged[value] = (place.partition, place.offset)

    def check(self, read: list) -> None:
        """Each acknowledged record is there once, where it was said to be, and in order."""
        assert not self.failed, (len(self.failed), str(self.failed[0]))
        assert len(self.acknowledged) == self.sent
        copies = defaultdict(list)
        for record in read:
            copies[record.value].append((record.partition, record.offset))
        assert len(read) == len(copies), "duplicated"
        assert copies.keys() == self.acknowledged.keys(), "lost"
        for value, place in self.acknowledged.items():
            assert place[1] == -1 or copies[value] == [place]
        last: dict[bytes, int] = {}
        for record in read:  # by partition and offset
            source, n = record.value.split()
            if source != b"-":
                assert int(n) > last.get(source, -1), f"reordered: {record}"
                last[source] = int(n)


async def during(load: Load, seconds: float, *faults: Callable[[], Awaitable[None]]) -> None:
    running = asyncio.create_task(load.run(seconds))
    try:
        for fault in faults:
            await asyncio.sleep(1.5)
            await fault()
        await running
    finally:
        running.cancel()


async def test_a_broker_killed_and_restarted_under_load(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 6, 3, _REPLICATED)
    async with Producer(kafka_cluster.bootstrap) as producer:
        load = Load(producer, topic)
        try:
            await during(
                load, 11, lambda: kafka_cluster.kill(1), lambda: kafka_cluster.start_broker(1)
            )
        finally:
            await kafka_cluster.heal()
    load.check(await read_topic(topic))


@pytest.mark.full
async def test_a_broker_paused_under_load(kafka_cluster, topic, create_topic, read_topic):
    await create_topic(topic, 6, 3, _REPLICATED)
    async with Producer(
        kafka_cluster.bootstrap, request_timeout_ms=4000, partitioner="late"
    ) as producer:
        load = Load(producer, topic)
        try:
            await during(load, 8, lambda: kafka_cluster.pause(2), lambda: kafka_cluster.resume(2))
        finally:
            await kafka_cluster.heal()
    load.check(await read_topic(topic))


class _Batches(Hooks):
    def __init__(self) -> None:
        self.delivered = self.failed = 0

    def on_batch(self, batch) -> None:
        if batch.error is None:
            self.delivered += batch.records
        else:
            self.failed += batch.records


async def test_readiness_and_hooks_while_all_brokers_are_away(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 6, 3, _REPLICATED)
    batches, turns = _Batches(), []
    async with Producer(kafka_cluster.bootstrap, hooks=batches) as producer:
        load = Load(producer, topic)
        assert await producer.healthy()

        async def ask(*, until: bool) -> None:
            asked_at = time.monotonic()
            while bool(health := await producer.healthy(timeout=1)) is not until:
                assert time.monotonic() - asked_at < _TURN_S, str(health)
                await asyncio.sleep(0.1)
            turns.append((time.monotonic() - asked_at, str(health)))

        async def away() -> None:
            for broker in kafka_cluster.brokers:
                await kafka_cluster.pause(broker)
            await ask(until=False)

        async def back() -> None:
            for broker in kafka_cluster.brokers:
                await kafka_cluster.resume(broker)
            await ask(until=True)

        try:
            await during(load, 5, away, back)
        finally:
            await kafka_cluster.heal()
    (gone_s, why), (back_s, _) = turns
    assert "no leader of the topics in use answers" in why
    assert gone_s < 15  # less than request.timeout.ms
    assert back_s < _TURN_S
    load.check(await read_topic(topic))
    assert (batches.delivered, batches.failed) == (load.sent, 0)


async def test_connections_cut_and_bytes_corrupted(kafka_cluster, topic, create_topic, read_topic):
    await create_topic(topic, 6, 3, _REPLICATED)

    async def cut_before() -> None:
        for broker in kafka_cluster.brokers:
            await kafka_cluster.proxy(broker).cut_before()

    async def cut_after() -> None:
        for broker in kafka_cluster.brokers:
            await kafka_cluster.proxy(broker).cut_after()

    async def corrupt() -> None:
        for broker in kafka_cluster.brokers:
            await kafka_cluster.proxy(broker).corrupt_request({-8: 0xFF})

    async with Producer(kafka_cluster.proxied_bootstrap) as producer:
        load = Load(producer, topic)
        try:
            await during(load, 8, cut_before, cut_after, corrupt, cut_after)
        finally:
            await kafka_cluster.heal()
        assert producer.metrics().producer["record-retry-total"] > 0
    load.check(await read_topic(topic))


async def test_with_all_brokers_down_everything_ends_on_time():
    async with LocalCluster(brokers=1) as cluster:
        async with Producer(cluster.bootstrap) as first:  # which may take longer on a new broker
            await first.send_and_wait("known", b"v")
        producer = Producer(
            cluster.bootstrap,
            bootstrap_connect_timeout_ms=30_000,
            max_block_ms=1500,
            delivery_timeout_ms=3000,
            request_timeout_ms=1000,
            buffer_memory=100_000,
            linger_ms=0,
        )
        await producer.start()
        await producer.send_and_wait("known", b"v")
        await cluster.kill(0)

        began = time.monotonic()
        pending = [producer.send_nowait("known", b"%d" % n) for n in range(50)]
        with pytest.raises(FlushTimeoutError) as flushed:
            await producer.flush(timeout=0.5)
        assert flushed.value.undelivered == 50
        with pytest.raises(MetadataTimeoutError, match="unknown"):
            await producer.send("unknown", b"v")
        large = [producer.send("known", bytes(10_000)) for _ in range(20)]
        outcomes = await asyncio.gather(*large, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, BufferFullError)]
        assert refused
        assert "buffer.memory" in str(refused[0])
        pending += [outcome for outcome in outcomes if outcome not in refused]
        for delivery in pending:
            with pytest.raises(DeliveryTimeoutError, match=r"delivery\.timeout\.ms"):
                await delivery
        assert time.monotonic() - began < 20  # it takes 5 s; the defaults are minutes

        late = producer.send_nowait("known", b"late")
        began = time.monotonic()
        assert await producer.stop(timeout=0.7) >= 1
        assert 0.5 < time.monotonic() - began < 10
        with pytest.raises(ProducerClosedError):
            await late
