"""A user's sampler, propagator, span processor or tracer raises: the record is sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, propagate
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    StaticSampler,
)
from opentelemetry.trace import NonRecordingSpan, NoOpTracer

from kafkaclient.errors import InvalidRecordError
from kafkaclient.opentelemetry.sending import SpanGate
from kafkaclient.testing.clock import virtual_time
from tests.opentelemetry.support import Seen, header, records
from tests.producer.support import start_producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkaclient import Producer
    from kafkaclient.opentelemetry import KafkaclientInstrumentor
    from kafkaclient.testing.fake import FakeCluster


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("out of order")


class FailsAtStart(SpanProcessor):
    on_start = fail


class FailsAtEnd(SpanProcessor):
    on_end = fail


class CancelsAtEnd(SpanProcessor):
    def on_end(self, span: Any) -> None:
        raise asyncio.CancelledError


class FailingSampler(Sampler):
    should_sample = fail

    def get_description(self) -> str:
        return "fails"


class FailingPropagator(TextMapPropagator):
    inject = extract = fail

    @property
    def fields(self) -> set[str]:
        return {"traceparent"}


class FailingSpan(NonRecordingSpan):
    is_recording = set_attributes = set_attribute = end = fail


class FailingTracer(NoOpTracer):
    def start_span(self, *_: Any, **__: Any) -> Any:
        return FailingSpan(super().start_span("").get_span_context())


class FailingProvider(TracerProvider):
    get_tracer = fail


class ProviderOfFailingSpans(TracerProvider):
    def get_tracer(self, *_: Any, **__: Any) -> Any:
        return FailingTracer()


@pytest.fixture
def failing_propagator() -> Iterator[None]:
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(FailingPropagator())
    yield
    propagate.set_global_textmap(before)


def provider_with(processor: SpanProcessor, sampler: Any = ALWAYS_ON) -> TracerProvider:
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


async def send_in_all_ways(producer: Producer) -> int:
    """How many records were sent."""
    await producer.send_nowait("t", b"1")
    await (await producer.send("t", b"2", headers={"a": b"b"}))
    await producer.send_and_wait("t", b"3", headers=[("traceparent", b"own")])
    await (await producer.send_many("t", [b"4", b"5"]))
    builder = producer.create_batch()
    builder.append(value=b"6")
    await (await producer.send_batch(builder, "t"))
    with pytest.raises(InvalidRecordError):
        await producer.send("t", 5)
    return 6


@pytest.mark.parametrize(
    ("provider", "culprit", "kinds"),
    [
        (lambda: provider_with(FailsAtStart()), "fail", 1),
        (lambda: provider_with(FailsAtEnd()), "fail", 1),
        (lambda: provider_with(CancelsAtEnd()), "CancelsAtEnd.on_end", 1),
        (lambda: provider_with(SpanProcessor(), FailingSampler()), "fail", 1),
        (lambda: FailingProvider(shutdown_on_exit=False), "fail", 1),
        (lambda: ProviderOfFailingSpans(shutdown_on_exit=False), "fail", 4),
    ],
)
@virtual_time
async def test_a_record_is_sent_although_its_tracing_fails(
    fake: FakeCluster,
    instrumentor: KafkaclientInstrumentor,
    caplog: pytest.LogCaptureFixture,
    provider: Callable[[], TracerProvider],
    culprit: str,
    kinds: int,
) -> None:
    instrumentor.instrument(tracer_provider=provider())
    async with start_producer(fake) as producer:
        sent = await send_in_all_ways(producer)
    assert len(records(fake)) == sent
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) <= kinds
    assert texts
    error = "CancelledError" if culprit.startswith("Cancels") else "RuntimeError"
    for text in texts:
        assert (
            f"{__name__}:{culprit} raised {error}. Records are sent and consumed all the same"
            in text
        )


@pytest.mark.usefixtures("failing_propagator")
@pytest.mark.parametrize("sampled", [True, False])
@virtual_time
async def test_a_record_is_sent_although_the_propagator_fails(
    fake: FakeCluster,
    instrumentor: KafkaclientInstrumentor,
    caplog: pytest.LogCaptureFixture,
    sampled: bool,
) -> None:
    seen = Seen() if sampled else Seen(sampler=FailingSampler())
    instrumentor.instrument(tracer_provider=seen.provider)
    token = context.attach(baggage.set_baggage("tenant", "a"))
    async with start_producer(fake) as producer:
        sent = await send_in_all_ways(producer)
    context.detach(token)
    assert len(records(fake)) == sent
    assert len(seen.spans) == (6 if sampled else 0)  # each call has ended its span
    steps = {record.getMessage().partition(":")[0] for record in caplog.records}
    assert "tracing failed while reading the context in headers" in steps
    assert "tracing failed while starting a span" in steps


def test_a_context_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    gate = SpanGate(fail, lambda _: None)
    assert [gate.unsampled_headers() for _ in range(3)] == [(), (), ()]
    (record,) = caplog.records
    assert "tracing failed while reading the current context" in record.getMessage()


@virtual_time
async def test_a_sampler_that_cannot_describe_itself_is_asked(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    class Nameless(StaticSampler):
        get_description = fail

    seen = Seen(sampler=ParentBased(Nameless(Decision.RECORD_AND_SAMPLE)))
    instrumentor.instrument(tracer_provider=seen.provider)
    async with start_producer(fake) as producer:
        sent = await send_in_all_ways(producer)
    assert len(records(fake)) == sent
    assert len(seen.spans) == 6
    assert "tracing failed while looking at the sampler" in caplog.text


@virtual_time
async def test_metrics_that_cannot_be_made_stop_no_producer(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    class Meters:
        get_meter = fail

    instrumentor.instrument(tracer_provider=Seen().provider, meter_provider=Meters())
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1")
    assert "preparing the metrics of a producer" in caplog.text


OWN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@virtual_time
async def test_a_context_in_an_iterator_is_the_callers_own(fake: FakeCluster, traced: Seen) -> None:
    pairs = [("own", b"1"), ("traceparent", OWN.encode())]
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1", headers=iter(pairs))  # type: ignore[arg-type]
        await (await producer.send_many("t", [b"2"], headers=(pair for pair in pairs)))  # type: ignore[arg-type]
        await (await producer.send_many("t", [b"3"], record_headers=[iter(pairs)]))  # type: ignore[list-item]
    for _, record in records(fake):
        assert header(record) == OWN
        assert header(record, "own") == "1"
    linked = [len(span.links) for span in traced.spans]
    assert linked == [1, 1, 0]  # the call with record_headers has its own context


@virtual_time
async def test_a_context_in_an_iterator_of_an_unsampled_record(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    instrumentor.instrument(tracer_provider=Seen().provider)
    parent = trace_context_without_sampling()
    token = context.attach(parent)
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1", headers=iter([("traceparent", OWN.encode())]))  # type: ignore[arg-type]
        await producer.send_and_wait("t", b"2", headers=iter([("own", b"1")]))  # type: ignore[arg-type]
    context.detach(token)
    found = {record.value: header(record) for _, record in records(fake)}
    assert found == {b"1": OWN, b"2": f"00-{7:032x}-{8:016x}-00"}


def trace_context_without_sampling() -> context.Context:
    return propagate.extract({"traceparent": [f"00-{7:032x}-{8:016x}-00"]})


@pytest.mark.parametrize(
    ("error", "raised"), [(ValueError, InvalidRecordError), (LookupError, LookupError)]
)
@virtual_time
async def test_an_iterator_of_headers_that_raises_is_refused_as_without_tracing(
    fake: FakeCluster, traced: Seen, error: type[Exception], raised: type[Exception]
) -> None:
    def broken() -> Iterator[tuple[str, bytes]]:
        yield "a", b"b"
        raise error("not today")

    async with start_producer(fake) as producer:
        with pytest.raises(raised, match="not today"):
            await producer.send("t", b"1", headers=broken())  # type: ignore[arg-type]
        with pytest.raises(raised, match="not today"):
            await producer.send_many("t", [b"1"], headers=broken())  # type: ignore[arg-type]
    assert records(fake) == []
    assert len(traced.spans) == 2
