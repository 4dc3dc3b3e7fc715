"""Frameworks and instrumentations that use aiokafka, unmodified, over ``install()``.

FastStream and OpenTelemetry's instrumentation are installed beside this package. faust-streaming
refuses the version of click that this project uses, so it has an environment of its own:
``build/faust``, which ``make slice`` makes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiokafka
import pytest
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage, TopicPartition
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, format_span_id, format_trace_id

from kafkaclient import Consumer
from kafkaclient.aiokafka import AIOKafkaConsumer, AIOKafkaProducer, install, uninstall

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[1]
FAUST_PYTHON = ROOT / "build" / "faust" / "bin" / "python"
FAUST_SERVICE = Path(__file__).parent / "neighbours" / "faust_service.py"
WITHIN_S = 30.0


@pytest.fixture
def installed() -> Iterator[None]:
    install()
    try:
        yield
    finally:
        uninstall()


@pytest.fixture
def installed_consumer() -> Iterator[None]:
    install(consumer=True)
    try:
        yield
    finally:
        uninstall()


class Received:
    """What a subscriber got, by body; ``wait`` until there are enough."""

    def __init__(self) -> None:
        self.messages: list[tuple[Any, KafkaMessage]] = []
        self._more = asyncio.Event()

    def take(self, body: Any, message: KafkaMessage) -> None:
        self.messages.append((body, message))
        self._more.set()

    async def wait(self, count: int) -> list[Any]:
        async with asyncio.timeout(WITHIN_S):
            while len(self.messages) < count:
                self._more.clear()
                await self._more.wait()
        return [body for body, _ in self.messages]


async def test_faststream_publishes_and_subscribes(
    installed, kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 2)
    broker, received = KafkaBroker(kafka_cluster.bootstrap.split(",")), Received()

    @broker.subscriber(topic, auto_offset_reset="earliest")
    async def handle(body: dict[str, int], message: KafkaMessage) -> None:
        received.take(body, message)

    async with broker:
        await broker.start()
        producer = broker.config.producer._producer.producer
        assert type(producer) is AIOKafkaProducer
        one = await broker.publish({"n": 1}, topic, key=b"k", partition=1, headers={"h": "v"})
        assert (one.topic, one.partition, one.offset) == (topic, 1, 0)
        future = await broker.publish({"n": 2}, topic, key=b"k", partition=1, no_confirm=True)
        assert asyncio.isfuture(future)
        assert (await future).offset == 1
        batch = await broker.publish_batch({"n": 3}, {"n": 4}, topic=topic, partition=1)
        assert (batch.partition, batch.offset) == (1, 2)
        await broker.publish_batch({"n": 5}, {"n": 6}, topic=topic)  # to one partition of any
        assert await broker.ping(timeout=5.0)
        await received.wait(6)
    assert producer._closed

    in_order = [body["n"] for body, m in received.messages if m.raw_message.partition == 1]
    assert in_order[:4] == [1, 2, 3, 4]
    # Either partition may be read first.
    assert [m.headers["h"] for body, m in received.messages if body == {"n": 1}] == ["v"]
    records = await read_topic(topic)
    last = {r.partition for r in records if r.value in (b'{"n":5}', b'{"n":6}')}
    assert len(records) == 6
    assert len(last) == 1


async def test_faststream_subscribes_with_the_drop_in(
    installed_consumer, kafka_cluster, topic, create_topic
):
    """Commits after each message, a message that fails and comes again, batches, partitions by
    hand, and a rebalance between two subscribers of one group."""
    await create_topic(topic, 2)
    await create_topic(f"{topic}-many", 1)
    broker = KafkaBroker(kafka_cluster.bootstrap.split(","))
    acked, by_hand = Received(), Received()
    many: list[int] = []
    failures = [2]
    group = {"group_id": topic, "auto_offset_reset": "earliest"}

    @broker.subscriber(topic, **group, ack_policy=AckPolicy.NACK_ON_ERROR)
    async def handle(body: int, message: KafkaMessage) -> None:
        acked.take(body, message)
        if body in failures:
            failures.remove(body)
            raise ValueError("again")

    @broker.subscriber(f"{topic}-many", batch=True, max_records=5, auto_offset_reset="earliest")
    async def handle_many(bodies: list[int]) -> None:
        many.extend(bodies)

    @broker.subscriber(partitions=[TopicPartition(topic, 1)], auto_offset_reset="earliest")
    async def handle_one_partition(body: int, message: KafkaMessage) -> None:
        by_hand.take(body, message)

    async with broker:
        await broker.start()
        assert {type(each.consumer) for each in broker.subscribers} == {AIOKafkaConsumer}
        for number in range(4):
            await broker.publish(number, topic, partition=number % 2)
        await broker.publish_batch(*range(7), topic=f"{topic}-many")
        assert sorted(await acked.wait(5)) == [0, 1, 2, 2, 3]
        assert await by_hand.wait(2) == [1, 3]
        async with asyncio.timeout(WITHIN_S):
            while len(many) < 7:
                await asyncio.sleep(0.05)
        other = KafkaBroker(kafka_cluster.bootstrap.split(","))

        @other.subscriber(topic, **group, ack_policy=AckPolicy.ACK)
        async def handle_as_well(body: int, message: KafkaMessage) -> None:
            acked.take(body, message)

        async with other:
            await other.start()
            for number in range(4, 8):
                await broker.publish(number, topic, partition=number % 2)
            bodies = await acked.wait(9)
            async with asyncio.timeout(WITHIN_S):
                while set(bodies) != {*range(8)}:  # a message may come twice in a rebalance
                    bodies = await acked.wait(len(bodies) + 1)
        await _until_committed(kafka_cluster.bootstrap, topic, 4)
    assert many == [*range(7)]
    async with Consumer(kafka_cluster.bootstrap, group_id=topic) as consumer:
        assert {*(await consumer.committed([(topic, 0), (topic, 1)])).values()} == {4}


async def _until_committed(bootstrap: str, topic: str, offset: int) -> None:
    """Wait until the group that is called like the topic has this offset of both partitions. What
    one member has not committed when it leaves comes to the other."""
    both = [(topic, 0), (topic, 1)]
    async with Consumer(bootstrap, group_id=topic) as consumer, asyncio.timeout(WITHIN_S):
        while {*(await consumer.committed(both)).values()} != {offset}:
            await asyncio.sleep(0.1)


async def test_faststream_replies(installed, kafka_cluster, topic, create_topic):
    """A request that names the topic for the reply; Kafka's broker of FastStream has no other."""
    replies = f"{topic}-replies"
    await create_topic(topic, 1)
    await create_topic(replies, 1)
    broker, received = KafkaBroker(kafka_cluster.bootstrap.split(",")), Received()

    @broker.subscriber(topic, auto_offset_reset="earliest")
    async def double(body: int) -> int:
        return 2 * body

    @broker.subscriber(replies, auto_offset_reset="earliest")
    async def reply(body: int, message: KafkaMessage) -> None:
        received.take(body, message)

    async with broker:
        await broker.start()
        await broker.publish(21, topic, reply_to=replies, correlation_id="one")
        assert await received.wait(1) == [42]
    assert received.messages[0][1].correlation_id == "one"


async def test_opentelemetry_sees_each_record_and_injects_its_span(
    installed, kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 3)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    plain = AIOKafkaProducer.send
    instrumentor = AIOKafkaInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=kafka_cluster.bootstrap, client_id="traced"
        )
        assert type(producer) is AIOKafkaProducer
        async with producer:
            first = await producer.send_and_wait(topic, b"v", key=b"UA")
            await (await producer.send(topic, b"v", partition=2, headers=[("own", b"1")]))
            await producer.send_and_wait(topic, b"neither key nor partition")
    finally:
        instrumentor.uninstrument()
    assert AIOKafkaProducer.send is plain

    spans = exporter.get_finished_spans()
    assert [(span.name, span.kind) for span in spans] == 3 * [(f"{topic} send", SpanKind.PRODUCER)]
    facts = [dict(span.attributes or {}) for span in spans]
    for found in facts:
        assert found["messaging.destination.name"] == topic
        assert found["messaging.client.id"] == "traced"
        assert kafka_cluster.bootstrap.split(",")[0] in str(found["server.address"])
    assert facts[0]["messaging.kafka.message.key"] == "UA"
    assert facts[0]["messaging.destination.partition.id"] == str(first.partition)
    assert facts[1]["messaging.destination.partition.id"] == "2"

    contexts = [span.context for span in spans]
    expected = {
        (format_trace_id(context.trace_id), format_span_id(context.span_id))
        for context in contexts
        if context is not None
    }
    records = await read_topic(topic)
    injected = {tuple(_traceparent(record)[1:3]) for record in records}
    assert injected == expected
    assert len(injected) == 3
    assert [r.headers[0] for r in records if r.partition == 2 and len(r.headers) > 1] == [
        ("own", b"1")
    ]


def _traceparent(record: Any) -> list[str]:
    """Version, trace, span and flags, as in W3C's Trace Context."""
    return dict(record.headers)["traceparent"].decode().split("-")


@pytest.mark.skipif(not FAUST_PYTHON.exists(), reason="make slice installs faust-streaming")
async def test_fausts_producer(kafka_cluster, topic, create_topic, read_topic):
    """In a process of its own, because faust-streaming has its own environment."""
    await create_topic(topic, 4)
    result = await asyncio.to_thread(
        subprocess.run,
        [FAUST_PYTHON, FAUST_SERVICE, kafka_cluster.bootstrap, topic],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout.splitlines()[-1])
    assert told["producer"] == "kafkaclient.aiokafka.producer.AIOKafkaProducer"

    committed = await read_topic(topic, isolation_level="read_committed")
    async with asyncio.timeout(WITHIN_S):  # a transaction is readable a moment after its commit
        while len(committed) < 4:
            await asyncio.sleep(0.1)
            committed = await read_topic(topic, isolation_level="read_committed")
    found = {record.value: record for record in committed}
    assert sorted(found) == [b"buffered", b"committed", b"explicit", b"keyed"]
    keyed, explicit = found[b"keyed"], found[b"explicit"]
    assert [keyed.partition, keyed.offset] == told["keyed"]
    assert keyed.partition == told["key_partition"]
    assert (explicit.partition, explicit.timestamp) == (3, 1_500_000_000_000)
    assert explicit.headers == (("h", b"v"),)
