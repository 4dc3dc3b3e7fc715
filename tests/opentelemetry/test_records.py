"""A span for each record: its name, attributes, end and context in the record's headers."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.trace import SpanKind, StatusCode

from kafkaclient import Producer
from kafkaclient.errors import BrokerError, BufferFullError, DeliveryTimeoutError, KafkaError
from kafkaclient.opentelemetry import (
    KafkaclientInstrumentor,
    instrument_producer,
    uninstrument_producer,
)
from kafkaclient.sync import SyncProducer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import ErrorCode, FakeCluster
from tests.opentelemetry.support import Seen, header, records, traceparent_of
from tests.producer.support import start_producer

if TYPE_CHECKING:
    from kafkaclient import UnseenFailure

SECRET = "hunter2"
_TOPIC_DENIED = 29


async def send_in_each_way(producer: Producer) -> list[Any]:
    one = await producer.send_nowait("t", b"1", b"a")
    two = await (await producer.send("t", b"2", b"b"))
    return [one, two, await producer.send_and_wait("t", b"3", partition=5)]


@virtual_time
async def test_each_way_to_send_has_a_span_with_partition_and_offset(
    fake: FakeCluster, traced: Seen
) -> None:
    async with start_producer(fake, client_id="me") as producer:
        results = await send_in_each_way(producer)
        assert len(traced.spans) == 3  # no span waits for the stop
    for span, result in zip(traced.spans, results, strict=True):
        assert (span.name, span.kind) == ("send t", SpanKind.PRODUCER)
        assert span.status.status_code is StatusCode.UNSET
        assert span.parent is None
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.end_time >= span.start_time
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.name == "kafkaclient.opentelemetry"
        leader = fake.leader("t", result.partition)
        assert dict(span.attributes or {}) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "t",
            "messaging.client.id": "me",
            "messaging.destination.partition.id": str(result.partition),
            "messaging.kafka.offset": result.offset,
            "server.address": f"fake-{leader}",
            "server.port": 9092,
        }


@virtual_time
async def test_the_record_carries_the_context_of_its_span(fake: FakeCluster, traced: Seen) -> None:
    given = [("own", b"1")]
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"list", headers=given)
        await producer.send_and_wait("t", b"dict", headers={"own": b"1"})
        await producer.send_and_wait("t", b"iterator", headers=iter(given))
        await producer.send_and_wait("t", b"none", headers=None)
    assert given == [("own", b"1")]  # it belongs to the caller
    by_header = traced.by_traceparent()
    for partition, record in records(fake):
        facts = by_header.pop(header(record) or "").attributes or {}
        assert facts["messaging.destination.partition.id"] == str(partition)
        assert facts["messaging.kafka.offset"] == record.offset
        assert header(record, "own") == (None if record.value == b"none" else "1")
    assert not by_header


@virtual_time
async def test_a_span_is_the_child_of_the_current_span(fake: FakeCluster, traced: Seen) -> None:
    tracer = trace.get_tracer("app", tracer_provider=traced.provider)
    async with start_producer(fake) as producer:
        with tracer.start_as_current_span("request") as parent:
            token = context.attach(baggage.set_baggage("user", "7"))
            await producer.send_and_wait("t", b"1")
            context.detach(token)
        await producer.send_and_wait("t", b"2")
    child, request, alone = traced.spans
    assert request.name == "request"
    assert child.parent == parent.get_span_context()
    assert child.get_span_context().trace_id == parent.get_span_context().trace_id  # type: ignore[union-attr]
    assert alone.parent is None
    by_value = {record.value: record for _, record in records(fake)}
    assert header(by_value[b"1"]) == traceparent_of(child)
    assert header(by_value[b"1"], "baggage") == "user=7"
    assert header(by_value[b"2"], "baggage") is None


@virtual_time
async def test_a_context_of_the_callers_own_stays_and_is_linked(
    fake: FakeCluster, traced: Seen
) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1", headers={"traceparent": own.encode()})
    ((_, record),) = records(fake)
    assert header(record) == own
    (span,) = traced.spans
    assert [f"{link.context.span_id:016x}" for link in span.links] == ["b7ad6b7169203331"]


@virtual_time
async def test_baggage_of_the_callers_own_stays_beside_the_spans_context(
    fake: FakeCluster, traced: Seen
) -> None:
    token = context.attach(baggage.set_baggage("tenant", "a"))
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1", headers=[("baggage", b"k=v")])
        await (await producer.send_many("t", [b"2"], headers={"baggage": b"k=v"}))
    context.detach(token)
    assert {header(r) for _, r in records(fake)} == set(traced.by_traceparent())
    assert [header(r, "baggage") for _, r in records(fake)] == ["k=v", "k=v"]


@virtual_time
async def test_a_context_in_a_list_as_the_pair_is_the_callers_own(
    fake: FakeCluster, traced: Seen
) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with start_producer(fake) as producer:
        pair: Any = ["traceparent", own.encode()]
        await producer.send_and_wait("t", b"1", headers=[pair])
        await (await producer.send_many("t", [b"2"], record_headers=[[pair]]))
    assert [header(r) for _, r in records(fake)] == [own, own]


@virtual_time
async def test_keys_are_attributes_only_if_asked_for_and_values_never(
    fake: FakeCluster, seen: Seen, instrumentor: KafkaclientInstrumentor
) -> None:
    instrumentor.instrument(tracer_provider=seen.provider)
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", SECRET.encode(), b"UA")
    instrumentor.uninstrument()
    instrumentor.instrument(tracer_provider=seen.provider, record_keys=True)
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", None, b"UA", headers={"h": SECRET.encode()})
        await producer.send_and_wait("t", SECRET.encode(), b"\xff")
        with pytest.raises(KafkaError):
            await producer.send("t", {SECRET})
    key, tombstone = "messaging.kafka.message.key", "messaging.kafka.message.tombstone"
    facts = seen.facts()
    assert [fact.get(key) for fact in facts] == [None, "UA", None, None]
    assert [fact.get(tombstone) for fact in facts] == [None, True, None, None]
    assert not [span for span in seen.spans if SECRET in span.to_json()]


@virtual_time
async def test_a_call_that_raises_ends_its_span_at_once(fake: FakeCluster, traced: Seen) -> None:
    async with start_producer(fake, max_request_size=1000) as producer:
        await producer.send_and_wait("t", b"")
        with pytest.raises(KafkaError):
            producer.send_nowait("t", b"x" * 2000)
        with pytest.raises(KafkaError):
            await producer.send(["t"], b"")  # type: ignore[arg-type]
        with pytest.raises(KafkaError):
            await producer.send("t", b"", headers=7)  # type: ignore[arg-type]
        assert [fact.get("error.type") for fact in traced.facts()] == [
            None,
            "RecordTooLargeError",
            "INVALID_TOPIC_EXCEPTION",
            "InvalidRecordError",
        ]
    assert {span.status.status_code for span in traced.spans[1:]} == {StatusCode.ERROR}
    assert traced.facts()[1]["kafkaclient.maybe_written"] is False
    assert len(traced.spans) == 4


@virtual_time
async def test_a_brokers_error_is_told_by_its_name(fake: FakeCluster, traced: Seen) -> None:
    fake.fail_produce("t", 2, _TOPIC_DENIED)
    async with start_producer(fake) as producer:
        with pytest.raises(BrokerError):
            await producer.send_and_wait("t", b"1", partition=2)
    (fact,) = traced.facts()
    assert fact["error.type"] == "TOPIC_AUTHORIZATION_FAILED"
    assert fact["messaging.destination.partition.id"] == "2"
    assert "messaging.kafka.offset" not in fact


@virtual_time
async def test_a_cancelled_wait_ends_no_span_before_its_delivery(
    fake: FakeCluster, traced: Seen
) -> None:
    fake.round_trip_s = 1.0
    async with start_producer(fake) as producer:
        await producer.partitions_for("t")
        waiting = asyncio.create_task(producer.send_and_wait("t", b"1"))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.sleep(0)
        assert not traced.spans
    (span,) = traced.spans
    assert (span.attributes or {})["messaging.kafka.offset"] == 0


@virtual_time
async def test_a_send_that_is_cancelled_before_it_was_appended(
    fake: FakeCluster, traced: Seen
) -> None:
    fake.round_trip_s = 1.0
    async with start_producer(fake) as producer:
        sending = asyncio.create_task(producer.send("t", b"1"))  # waits for metadata
        await asyncio.sleep(0.1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert [fact["error.type"] for fact in traced.facts()] == ["CancelledError"]
    assert not records(fake)


@virtual_time
async def test_a_record_that_is_held_for_metadata(fake: FakeCluster, traced: Seen) -> None:
    async with start_producer(fake) as producer:
        delivery = producer.send_nowait("t", b"1")
        assert not traced.spans
        result = await delivery
    (fact,) = traced.facts()
    assert fact["messaging.destination.partition.id"] == str(result.partition)
    assert fact["messaging.kafka.offset"] == result.offset


@virtual_time
async def test_a_held_record_that_expires(traced: Seen) -> None:
    fake = FakeCluster(auto_create_topics=False)
    async with start_producer(fake, max_block_ms=100) as producer:
        delivery = producer.send_nowait("missing", b"1")
        with pytest.raises(KafkaError) as caught:
            await delivery
    assert [fact["error.type"] for fact in traced.facts()] == [type(caught.value).__name__]


@virtual_time
async def test_a_record_that_expires(fake: FakeCluster, traced: Seen) -> None:
    async with start_producer(
        fake, delivery_timeout_ms=1000, request_timeout_ms=500, linger_ms=0
    ) as producer:
        await producer.partitions_for("t")
        for broker in range(3):
            fake.stall_broker(broker)
        with pytest.raises(DeliveryTimeoutError) as caught:
            await producer.send_and_wait("t", b"1")
        for broker in range(3):
            fake.resume_broker(broker)
    (fact,) = traced.facts()
    assert fact["error.type"] == "DeliveryTimeoutError"
    assert fact["kafkaclient.maybe_written"] is caught.value.maybe_written


@virtual_time
async def test_a_stop_that_gives_up_records(fake: FakeCluster, traced: Seen) -> None:
    async with start_producer(fake) as producer:
        await producer.partitions_for("t")
        for broker in range(3):
            fake.stall_broker(broker)
        deliveries = [producer.send_nowait("t", b"%d" % n) for n in range(50)]
        assert await producer.stop(0.5) == 50
        await asyncio.sleep(0)
    assert all(delivery.done() for delivery in deliveries)
    assert [fact["error.type"] for fact in traced.facts()] == 50 * ["ProducerClosedError"]
    traced.by_traceparent()


@virtual_time
async def test_failures_that_nobody_looks_at_are_still_reported(
    fake: FakeCluster, traced: Seen
) -> None:
    """A span that reads the outcome is no look at it in the user's place."""
    reported: list[UnseenFailure] = []
    fake.fail_produce("t", 0, _TOPIC_DENIED, times=2)
    async with start_producer(fake, on_error=reported.append) as producer:
        await producer.partitions_for("t")
        producer.send_nowait("t", b"dropped", partition=0)
        await producer.flush()
        kept = producer.send_nowait("t", b"kept", partition=0)
        await producer.flush()
        await asyncio.sleep(0.01)
        assert len(traced.spans) == 2
        del kept
        gc.collect()
        await asyncio.sleep(0.01)
    assert sum(failure.records for failure in reported) == 2


@virtual_time
async def test_spans_end_in_the_order_of_the_log_and_once_when_a_batch_is_split(
    fake: FakeCluster, traced: Seen
) -> None:
    fake.fail_produce("t", 0, ErrorCode.MESSAGE_TOO_LARGE)
    async with start_producer(fake, linger_ms=50) as producer:
        await producer.partitions_for("t")
        for n in range(20):
            producer.send_nowait("t", b"%d" % n, partition=0)
    by_header = traced.by_traceparent()
    assert len(by_header) == 20
    for record in fake.log("t", 0):
        facts = by_header[header(record) or ""].attributes or {}
        assert facts["messaging.kafka.offset"] == record.offset


@virtual_time
async def test_a_full_buffer(fake: FakeCluster, traced: Seen) -> None:
    fake.round_trip_s = 1.0
    async with start_producer(fake, buffer_memory=3000, batch_size=1000) as producer:
        await producer.partitions_for("t")
        full = partial(producer.send_nowait, "t", b"x" * 500)
        with pytest.raises(BufferFullError):
            list(iter(full, None))
    failed = [fact for fact in traced.facts() if "error.type" in fact]
    assert [fact["error.type"] for fact in failed] == ["BufferFullError"]
    assert len(traced.spans) == len(records(fake)) + 1


# --- switching it on and off ----------------------------------------------------------------------


@virtual_time
async def test_uninstrument_restores_the_methods(
    fake: FakeCluster, seen: Seen, instrumentor: KafkaclientInstrumentor
) -> None:
    before = dict(vars(Producer))
    async with start_producer(fake) as producer:
        instrumentor.instrument(tracer_provider=seen.provider)
        kept = producer.send_nowait
        delivery = producer.send_nowait("t", b"1")  # the producer is older than the instrumentation
        instrumentor.uninstrument()
        assert dict(vars(Producer)) == before
        await producer.send_and_wait("t", b"2")
        await kept("t", b"3")
        await delivery
        await asyncio.sleep(0)
    (span,) = seen.spans  # it ended although the instrumentation had ended before
    assert (span.attributes or {})["messaging.kafka.offset"] == 0
    assert sorted(header(r) is not None for _, r in records(fake)) == [False, False, True]


@virtual_time
async def test_one_producer_alone(fake: FakeCluster, seen: Seen) -> None:
    async with start_producer(fake) as one, start_producer(fake) as other:
        instrument_producer(one, tracer_provider=seen.provider)
        instrument_producer(one, tracer_provider=seen.provider)
        assert isinstance(one, Producer)
        await one.send_and_wait("t", b"traced")
        await other.send_and_wait("t", b"not")
        uninstrument_producer(one)
        uninstrument_producer(one)
        assert type(one) is Producer
        await one.send_and_wait("t", b"not any more")
    assert [r.value for _, r in records(fake) if header(r)] == [b"traced"]
    assert len(seen.spans) == 1


@virtual_time
async def test_a_key_is_that_of_the_send(fake: FakeCluster, seen: Seen) -> None:
    """The caller uses one buffer for the keys of several records."""
    async with start_producer(fake) as producer:
        instrument_producer(producer, tracer_provider=seen.provider, record_keys=True)
        buffer = bytearray(4)
        for key in (b"aaaa", b"bbbb", b"\xff\xff\xff\xff", b"cccc"):
            buffer[:] = key
            producer.send_nowait("t", b"1", buffer)
            producer.send_nowait("t", b"2", memoryview(buffer))
    keys = [facts.get("messaging.kafka.message.key") for facts in seen.facts()]
    assert sorted(map(str, keys)) == sorted(["aaaa", "bbbb", "None", "cccc"] * 2)


@virtual_time
@pytest.mark.parametrize("alone", [False, True])
async def test_the_methods_of_a_subclass_are_called(
    fake: FakeCluster, seen: Seen, instrumentor: KafkaclientInstrumentor, alone: bool
) -> None:
    started = []

    class Encrypting(Producer):
        async def start(self) -> None:
            started.append(self)
            await super().start()

        async def send(self, topic: str, value: Any = None, key: Any = None, **others: Any) -> Any:
            return await super().send(topic, b"!" + value, key, **others)

        def send_nowait(self, topic: str, value: Any = None, key: Any = None, **others: Any) -> Any:
            return super().send_nowait(topic, b"!" + value, key, **others)

        async def send_many(self, topic: str, values: Any, **others: Any) -> Any:
            return await super().send_many(topic, [b"!" + value for value in values], **others)

    producer = Encrypting(fake.bootstrap, dialer=fake)
    if alone:
        instrument_producer(producer, tracer_provider=seen.provider)
    else:
        instrumentor.instrument(tracer_provider=seen.provider)
    async with producer:
        await (await producer.send("t", b"1"))
        await producer.send_nowait("t", b"2")
        await (await producer.send_many("t", [b"3", b"4"]))
        await asyncio.sleep(0)
        if alone:
            uninstrument_producer(producer)
            assert type(producer) is Encrypting
    assert started == [producer]
    assert sorted(r.value or b"" for _, r in records(fake)) == [b"!1", b"!2", b"!3", b"!4"]
    assert all(header(r) for _, r in records(fake))
    assert len(seen.spans) == 3


@virtual_time
async def test_what_cannot_be_traced_is_refused(fake: FakeCluster, seen: Seen) -> None:
    wrong: Any
    for wrong in (object(), SyncProducer, None):
        with pytest.raises(TypeError, match="KafkaclientInstrumentor traces all"):
            instrument_producer(wrong, tracer_provider=seen.provider)
    async with start_producer(fake) as producer:
        instrument_producer(producer, tracer_provider=seen.provider)
        wrong = 5
        with pytest.raises(TypeError, match="tracer_provider must be a TracerProvider, not 5"):
            instrument_producer(producer, tracer_provider=wrong)
        await producer.send_and_wait("t", b"1")
    assert len(seen.spans) == 1  # the call that was refused changed nothing


@virtual_time
async def test_both_at_once_make_one_span(fake: FakeCluster, seen: Seen, traced: Seen) -> None:
    alone = Seen()
    async with start_producer(fake) as producer:
        instrument_producer(producer, tracer_provider=alone.provider)
        await producer.send_and_wait("t", b"1")
        uninstrument_producer(producer)
        await producer.send_and_wait("t", b"2")
    assert (len(alone.spans), len(traced.spans)) == (1, 1)


@virtual_time
async def test_a_traced_producer_that_is_dropped_warns_at_once(
    fake: FakeCluster, seen: Seen
) -> None:
    producer = Producer(fake.bootstrap, dialer=fake)
    instrument_producer(producer, tracer_provider=seen.provider)
    await producer.start()
    await producer.send_and_wait("t", b"1")
    await asyncio.sleep(0)
    with pytest.warns(ResourceWarning, match="unclosed producer"):
        del producer
    await asyncio.sleep(5)  # it is stopped in the background


@virtual_time
async def test_suppressed_instrumentation_makes_no_span_and_no_header(
    fake: FakeCluster, traced: Seen
) -> None:
    from opentelemetry.instrumentation.utils import suppress_instrumentation  # noqa: PLC0415

    async with start_producer(fake) as producer:
        with suppress_instrumentation():
            await producer.send_and_wait("t", b"1")
        await producer.send_and_wait("t", b"2")
    assert len(traced.spans) == 1
    assert {r.value: header(r) is not None for _, r in records(fake)} == {b"1": False, b"2": True}


@virtual_time
async def test_another_propagator(fake: FakeCluster, traced: Seen) -> None:
    class Own(propagate.textmap.TextMapPropagator):
        fields = {"own-trace"}  # noqa: RUF012

        def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
            span_context = trace.get_current_span(context).get_span_context()
            setter.set(carrier, "own-trace", f"{span_context.span_id:x}")

        def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
            return context

    usual = propagate.get_global_textmap()
    async with start_producer(fake) as producer:
        propagate.set_global_textmap(Own())
        try:
            await producer.send_and_wait("t", b"1")
        finally:
            propagate.set_global_textmap(usual)
    ((_, record),) = records(fake)
    (span,) = traced.spans
    assert header(record) is None
    assert header(record, "own-trace") == f"{span.get_span_context().span_id:x}"  # type: ignore[union-attr]
