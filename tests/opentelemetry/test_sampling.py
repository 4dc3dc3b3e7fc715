"""Which records get a span, and what the headers of the others carry."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from kafkaclient.opentelemetry import KafkaclientInstrumentor, instrument_producer
from kafkaclient.opentelemetry.spans import Sampling
from kafkaclient.testing.clock import virtual_time
from tests.opentelemetry.support import Seen, header, records
from tests.producer.support import start_producer

if TYPE_CHECKING:
    from kafkaclient.testing.fake import FakeCluster

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
PARENT = SpanContext(TRACE_ID, 0xB7AD6B7169203331, is_remote=True)
SAMPLED = SpanContext(TRACE_ID, 0xB7AD6B7169203331, True, TraceFlags(TraceFlags.SAMPLED))


def inside(parent: SpanContext) -> Any:
    return context.attach(trace.set_span_in_context(NonRecordingSpan(parent)))


class Never(Sampler):
    """A sampler of the program's own."""

    def should_sample(self, *_: Any, **__: Any) -> SamplingResult:
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return "Never"


@pytest.mark.parametrize(
    ("sampler", "parent"),
    [
        (ALWAYS_OFF, PARENT),
        (ParentBased(ALWAYS_ON), PARENT),
        (ParentBasedTraceIdRatio(0.5), PARENT),
        (ALWAYS_OFF, SAMPLED),
        (TraceIdRatioBased(1e-18), SAMPLED),
        (Never(), SAMPLED),
        (Never(), PARENT),
    ],
)
@virtual_time
async def test_an_unsampled_record_carries_its_parents_context(
    sampler: Sampler, parent: SpanContext, fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    seen = Seen(sampler)
    instrumentor.instrument(tracer_provider=seen.provider)
    async with start_producer(fake) as producer:
        token = inside(parent)
        own = [("own", b"1")]
        producer.send_nowait("t", b"1", headers=own)
        await (await producer.send("t", b"2"))
        await producer.send_and_wait("t", b"3", headers={"own": b"1"})
        await (await producer.send_many("t", [b"4"], record_headers=[own]))
        await (await producer.send_many("t", [b"5"], headers=own, record_headers=[None]))
        await producer.send_and_wait("t", b"6", headers={"traceparent": b"mine"})
        in_a_list: Any = [["traceparent", b"mine"]]
        await producer.send_and_wait("t", b"7", headers=in_a_list)
        context.detach(token)
    assert own == [("own", b"1")]
    expected = f"00-{TRACE_ID:032x}-b7ad6b7169203331-00"
    assert {r.value: header(r) for _, r in records(fake)} == {
        **dict.fromkeys((b"1", b"2", b"3", b"4", b"5"), expected),
        b"6": "mine",
        b"7": "mine",
    }
    assert all(header(r, "own") == "1" for _, r in records(fake) if r.value in (b"1", b"4", b"5"))
    assert not seen.spans


@virtual_time
async def test_without_parent_an_unsampled_record_carries_baggage_only(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    seen = Seen(ALWAYS_OFF)
    instrumentor.instrument(tracer_provider=seen.provider)
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1")
        token = context.attach(baggage.set_baggage("user", "7"))
        await producer.send_and_wait("t", b"2")
        context.detach(token)
        await producer.send_and_wait("t", b"3")
    found = {r.value: dict(r.headers) for _, r in records(fake)}
    assert found == {b"1": {}, b"2": {"baggage": b"user=7"}, b"3": {}}
    assert not seen.spans


@pytest.mark.parametrize(("ratio", "total"), [(0.01, 20_000), (0.3, 10_000), (1.0, 1000)])
@virtual_time
async def test_the_share_of_sampled_records_and_their_trace_ids(
    ratio: float, total: int, fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    sampler = TraceIdRatioBased(ratio)
    seen = Seen(sampler)
    instrumentor.instrument(tracer_provider=seen.provider)
    async with start_producer(fake) as producer:
        for _ in range(total // 100):
            for _ in range(100):
                producer.send_nowait("t", b"")
            await producer.flush()
    sampled = len(seen.spans)
    assert abs(sampled - ratio * total) <= 6 * math.sqrt(ratio * (1 - ratio) * total) + 1
    for span in seen.spans:
        span_context = span.get_span_context()
        assert span_context is not None
        # A sampler of the same ratio further down agrees.
        assert sampler.should_sample(None, span_context.trace_id, "").decision.is_sampled()
    by_header = seen.by_traceparent()
    with_header = [header(r) for _, r in records(fake) if header(r)]
    assert sorted(with_header) == sorted(by_header)  # type: ignore[type-var]


def test_the_gaps_are_as_independent_draws_give_them() -> None:
    """Compared with the sampler's own decisions by their distribution: gap 0, 1, 2, ..."""
    sampling = Sampling(TracerProvider(TraceIdRatioBased(0.25)))
    decisions = [sampling.gate.unsampled_headers() is None for _ in range(40_000)]
    gaps, gap = [], 0
    for sampled in decisions:
        if sampled:
            gaps.append(gap)
        gap = 0 if sampled else gap + 1
    for length in range(6):
        share = gaps.count(length) / len(gaps)
        assert share == pytest.approx(0.25 * 0.75**length, abs=0.016)


@pytest.mark.parametrize(
    ("sampler", "parent", "expected"),
    [
        (ParentBased(ALWAYS_OFF), SAMPLED, True),
        (ParentBased(ALWAYS_ON), PARENT, False),
        (ALWAYS_OFF, SAMPLED, False),
        (ALWAYS_ON, PARENT, True),
        (ParentBased(ALWAYS_OFF, remote_parent_not_sampled=ALWAYS_ON), PARENT, True),
        (TraceIdRatioBased(0.9), PARENT, True),  # by the trace id
        (TraceIdRatioBased(0.1), SAMPLED, False),
    ],
)
@virtual_time
async def test_the_sampler_decides_about_children(
    sampler: Sampler, parent: SpanContext, expected: bool, fake: FakeCluster
) -> None:
    seen = Seen(sampler)
    async with start_producer(fake) as producer:
        instrument_producer(producer, tracer_provider=seen.provider)
        token = inside(parent)
        await producer.send_and_wait("t", b"1")
        await producer.send_and_wait("t", b"2")
        context.detach(token)
    assert len(seen.spans) == (2 if expected else 0)
    for span in seen.spans:
        assert span.parent == parent
        assert span.get_span_context().trace_id == TRACE_ID  # type: ignore[union-attr]


class ByAttributes(Sampler):
    """A sampler of a program, which looks at the attributes of each span."""

    def __init__(self) -> None:
        self.asked = 0

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        self.asked += 1
        wanted = attributes["messaging.kafka.message.key"] == "yes"
        return SamplingResult(Decision.RECORD_AND_SAMPLE if wanted else Decision.DROP, attributes)

    def get_description(self) -> str:
        return "ByAttributes"


@virtual_time
async def test_a_sampler_of_the_programs_own_is_asked_about_each_record(fake: FakeCluster) -> None:
    sampler = ByAttributes()
    seen = Seen(sampler)
    async with start_producer(fake) as producer:
        instrument_producer(producer, tracer_provider=seen.provider, record_keys=True)
        for key in (b"yes", b"no", b"yes", b"no"):
            await producer.send_and_wait("t", key, key)
    assert (sampler.asked, len(seen.spans)) == (4, 2)
    flags = {r.value: (header(r) or "")[-2:] for _, r in records(fake)}
    assert flags == {b"yes": "03", b"no": ""}


class Changed(TraceIdRatioBased):
    """A known description, and another choice."""

    def should_sample(self, *given: Any, **others: Any) -> SamplingResult:
        return ALWAYS_ON.should_sample(*given, **others)


@pytest.mark.parametrize(
    "sampler",
    [
        Changed(0.01),
        ParentBased(Changed(0.01)),
        ParentBased(ParentBased(ALWAYS_ON)),
        ParentBased(ALWAYS_ON, remote_parent_sampled=Never()),
    ],
)
@virtual_time
async def test_a_sampler_is_asked_about_each_record_if_its_description_does_not_tell(
    sampler: Sampler, fake: FakeCluster
) -> None:
    seen = Seen(sampler)
    async with start_producer(fake) as producer:
        instrument_producer(producer, tracer_provider=seen.provider)
        for _ in range(20):
            await producer.send_and_wait("t", b"")
    assert len(seen.spans) == 20


class Counting(RandomIdGenerator):
    """A program's own ids."""

    def __init__(self) -> None:
        self.last = 0

    def generate_trace_id(self) -> int:
        self.last += 1
        return self.last


@virtual_time
async def test_ids_of_the_programs_own(fake: FakeCluster) -> None:
    seen = Seen(TraceIdRatioBased(0.5))
    seen.provider.id_generator = Counting()
    async with start_producer(fake) as producer:
        instrument_producer(producer, tracer_provider=seen.provider)
        for n in range(10):
            await producer.send_and_wait("t", b"%d" % n)
    assert len(seen.spans) == 10  # small trace ids are sampled
    found = [span.get_span_context().trace_id for span in seen.spans]  # type: ignore[union-attr]
    assert found == list(range(1, 11))


@virtual_time
async def test_a_second_instrumentation_with_the_same_provider_samples_the_same_share(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor
) -> None:
    seen = Seen(TraceIdRatioBased(0.1))
    async with start_producer(fake) as producer:
        for _ in range(2):
            instrumentor.instrument(tracer_provider=seen.provider)
            for _ in range(1000):
                await producer.send("t", b"")
            instrumentor.uninstrument()
    assert 120 < len(seen.spans) < 280


@virtual_time
async def test_a_provider_that_is_set_later(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen()
    instrumentor.instrument()
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1")
        token = inside(PARENT)
        await producer.send_and_wait("t", b"2")
        context.detach(token)
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: seen.provider)
        await producer.send_and_wait("t", b"3")
    assert len(seen.spans) == 1
    found = {r.value: header(r) for _, r in records(fake)}
    assert found[b"1"] is None
    assert (found[b"2"] or "").endswith("b7ad6b7169203331-00")
    assert found[b"3"] == next(iter(seen.by_traceparent()))


@virtual_time
async def test_a_tracer_that_is_not_the_sdks(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    """``OTEL_SDK_DISABLED`` gives a NoOpTracer as well."""
    caplog.set_level("INFO")
    instrumentor.instrument(tracer_provider=trace.NoOpTracerProvider())
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1")
        token = inside(SAMPLED)
        await producer.send_and_wait("t", b"2")
        await (await producer.send_many("t", [b"3"]))
        context.detach(token)
    parents = f"00-{TRACE_ID:032x}-b7ad6b7169203331-01"
    assert {r.value: header(r) for _, r in records(fake)} == {
        b"1": None,
        b"2": parents,
        b"3": parents,
    }
    assert not [line for line in caplog.records if "opentelemetry" in line.name]
