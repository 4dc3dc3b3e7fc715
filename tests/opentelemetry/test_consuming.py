"""Spans and metrics of consumers: links to the senders of records, and records in process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiokafka
import pytest
from aiokafka.errors import KafkaConnectionError
from opentelemetry import baggage, propagate, trace
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import SpanKind

from kafkaclient import Consumer
from kafkaclient.aiokafka import AIOKafkaConsumer, AIOKafkaProducer, install, uninstall
from kafkaclient.errors import ConsumerStateError
from kafkaclient.opentelemetry import (
    instrument_consumer,
    instrument_producer,
    process_span,
    uninstrument_producer,
)
from kafkaclient.reader import FetchedRecord
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.opentelemetry.support import Seen
from tests.opentelemetry.test_metrics import DURATION, Meters
from tests.producer.support import start_producer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from kafkaclient.opentelemetry import KafkaclientInstrumentor

COMMON = {
    "messaging.system": "kafka",
    "messaging.destination.name": "t",
    "messaging.consumer.group.name": "g",
}


def consumer_of(fake: FakeCluster, **options: Any) -> Consumer:
    options = {"auto_offset_reset": "earliest", "client_id": "c", "group_id": "g", **options}
    return Consumer(fake.bootstrap, dialer=fake, topics=["t"], **options)


def named(seen: Seen, name: str) -> list[ReadableSpan]:
    return [span for span in seen.spans if span.name == name]


def links(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


@virtual_time
async def test_a_batch_is_linked_to_the_senders_of_its_records(
    fake: FakeCluster, traced: Seen
) -> None:
    async with start_producer(fake, linger_ms=100) as producer:
        await (await producer.send_many("t", [b"1", b"2"], partition=1))
        producer.send_nowait("t", b"3", partition=1)
        producer.send_nowait("t", b"4", partition=1, headers=[("baggage", b"a=b")])
    senders = [id_of(span) for span in named(traced, "send t")]
    async with consumer_of(fake) as consumer:
        with trace.get_tracer("app", tracer_provider=traced.provider).start_as_current_span("app"):
            record = await consumer.getone()
        assert await consumer.getmany(max_records=9)
    (app,) = named(traced, "app")
    polled = named(traced, "poll t")
    assert [span.kind for span in polled] == [SpanKind.CLIENT] * len(polled)
    assert [each for span in polled for each in links(span)] == senders
    first = polled[0]
    assert first.parent is not None
    assert first.parent.span_id == id_of(app)
    assert first.attributes == COMMON | {
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.client.id": "c",
        "messaging.batch.message_count": 4,
        "messaging.destination.partition.id": "1",
        "messaging.kafka.offset": record.offset,
        "server.address": f"fake-{fake.leader('t', 1)}",
        "server.port": 9092,
    }


@virtual_time
async def test_a_record_in_process_is_linked_or_a_child(fake: FakeCluster, traced: Seen) -> None:
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", None, key=b"k", headers=[("baggage", b"a=b")])
    (sent,) = named(traced, "send t")
    async with consumer_of(fake) as consumer:
        record = await consumer.getone()
        with process_span(record, consumer) as span:
            assert trace.get_current_span() is span
            assert baggage.get_baggage("a") is None
        assert not trace.get_current_span().is_recording()
        with process_span(record, consumer, child=True):
            assert baggage.get_baggage("a") == "b"
        with pytest.raises(ValueError, match="secret"), process_span(record):
            raise ValueError("secret")
    linked, child, failed = named(traced, "process t")
    assert (links(linked), linked.parent) == ([id_of(sent)], None)
    assert child.parent is not None
    assert (links(child), child.parent.span_id) == ([], id_of(sent))
    assert linked.kind is SpanKind.CONSUMER
    assert linked.attributes == COMMON | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": "c",
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.tombstone": True,
    }
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ValueError"
    assert not failed.status.is_ok
    assert "secret" not in failed.to_json()


@virtual_time
async def test_batches_commits_and_processing_are_measured(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    meters = Meters()
    instrumentor.instrument(meter_provider=meters.provider)
    async with start_producer(fake) as producer, consumer_of(fake) as consumer:
        waiting = asyncio.create_task(consumer.getone(("t", 2)))
        await asyncio.sleep(7)
        await (await producer.send_many("t", [b"1", b"2"], partition=2))
        with process_span(await waiting, consumer):
            await asyncio.sleep(0)
        await consumer.commit()
    found = meters.read()
    ((attributes, consumed),) = found["messaging.client.consumed.messages"]
    poll = {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
    leader = {"server.address": f"fake-{fake.leader('t', 2)}", "server.port": 9092}
    assert attributes == COMMON | poll | leader
    assert consumed.value == 2
    durations = {a["messaging.operation.name"]: point for a, point in found[DURATION]}
    assert durations["poll"].sum == pytest.approx(7, abs=3)
    assert durations["commit"].count >= 1
    ((attributes, processed),) = found["messaging.process.duration"]
    assert (attributes["messaging.operation.type"], processed.count) == ("process", 1)


@virtual_time
async def test_one_consumer_alone(fake: FakeCluster, seen: Seen) -> None:
    consumer = consumer_of(fake, group_id="g", value_deserializer=bytes.decode)
    instrument_consumer(consumer, tracer_provider=seen.provider, record_keys=True)
    async with start_producer(fake) as producer, consumer, consumer_of(fake, group_id="h") as other:
        await producer.send_and_wait("t", b"1", key=b"k")
        with process_span(await consumer.getone(), consumer):
            pass
        with process_span(await other.getone(), other):
            pass
        with pytest.raises(ConsumerStateError, match="before"):
            instrument_consumer(other)
    assert [span.name for span in seen.spans] == ["poll t", "process t"]
    assert seen.facts()[1]["messaging.kafka.message.key"] == "k"


@virtual_time
async def test_a_drop_in_is_traced_after_a_start_that_failed(seen: Seen) -> None:
    fake = FakeCluster(1)
    fake.create_topic("t", 1)
    options = {"bootstrap_servers": fake.bootstrap, "dialer": fake, "request_timeout_ms": 1_000}
    consumer = AIOKafkaConsumer("t", auto_offset_reset="earliest", **options)
    producer = AIOKafkaProducer(**options)
    instrument_consumer(consumer, tracer_provider=seen.provider)
    instrument_producer(producer, tracer_provider=seen.provider)
    fake.stop_broker(0)
    for client in (consumer, producer):
        with pytest.raises(KafkaConnectionError):
            await client.start()
    fake.start_broker(0)
    async with producer, consumer:
        await producer.send_and_wait("t", b"1")
        with process_span(await consumer.getone(), consumer):
            pass
    assert [span.name for span in seen.spans] == ["send t", "poll t", "process t"]
    uninstrument_producer(producer)
    assert "Traced" not in str(type(producer._producer).__mro__)


@virtual_time
async def test_nothing_after_uninstrument(
    fake: FakeCluster, seen: Seen, instrumentor: KafkaclientInstrumentor
) -> None:
    plain = vars(Consumer)["start"]
    instrumentor.instrument(tracer_provider=seen.provider)
    async with start_producer(fake) as producer, consumer_of(fake) as consumer:
        instrumentor.uninstrument()
        assert vars(Consumer)["start"] is plain
        await producer.send_and_wait("t", b"1")
        with process_span(await consumer.getone(), consumer) as span:
            assert not span.is_recording()
    assert not seen.spans


@virtual_time
async def test_tracing_that_fails_does_not_stop_the_consumer(
    fake: FakeCluster, traced: Seen, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    async with start_producer(fake) as producer, consumer_of(fake) as consumer:
        await producer.send_and_wait("t", b"1")
        monkeypatch.setattr(propagate, "get_global_textmap", lambda: None)
        record = await consumer.getone()
        with process_span(record, consumer, child=True) as span:
            assert not span.is_recording()
    assert "Records are sent and consumed all the same" in caplog.text


@virtual_time
async def test_the_sampler_decides_on_each_batch(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    """A producer's tracer draws ids that its sampler accepts: a consumer's does not."""
    seen = Seen(TraceIdRatioBased(1e-9))
    instrumentor.instrument(tracer_provider=seen.provider)
    async with start_producer(fake) as producer, consumer_of(fake) as consumer:
        for _ in range(20):
            await producer.send_and_wait("t", b"1")
            await consumer.getone()
    assert not seen.spans


def test_at_most_as_many_links_as_a_span_keeps(seen: Seen) -> None:
    from kafkaclient.opentelemetry.consuming import _senders  # noqa: PLC0415

    headers = [(("traceparent", f"00-{n:032x}-{n:016x}-01".encode()),) for n in range(1, 400)]
    found = _senders(headers + headers)
    assert [each.span_id for each in found] == list(range(1, 129))
    assert _senders([(), (("traceparent", b"\xff"),), (("traceparent", None),)]) == []


def test_any_record_can_be_processed(seen: Seen, traced: Seen) -> None:
    record = FetchedRecord("other", 3, 5, -1, 0, b"k", b"v")
    with process_span(record):  # type: ignore[arg-type]
        pass
    (span,) = traced.spans
    assert span.name == "process other"


@virtual_time
async def test_no_doubled_spans_beside_the_instrumentation_of_aiokafka(
    fake: FakeCluster, traced: Seen
) -> None:
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1")

    async def consume() -> None:
        async with AIOKafkaConsumer(
            "t", bootstrap_servers=fake.bootstrap, dialer=fake, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.getone()

    await consume()
    assert len(named(traced, "poll t")) == 1
    install(consumer=True)
    theirs, other = Seen(), AIOKafkaInstrumentor()
    other.instrument(tracer_provider=theirs.provider)
    try:
        assert aiokafka.AIOKafkaConsumer is AIOKafkaConsumer
        await consume()
    finally:
        other.uninstrument()
        uninstall()
    assert theirs.spans
    assert len(named(traced, "poll t")) == 1
