"""Versions of OpenTelemetry whose private names have changed: records are sent, spans are whole."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import context as context_api
from opentelemetry import propagate, trace
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from kafkaclient.opentelemetry import direct_spans
from kafkaclient.testing.clock import virtual_time
from tests.opentelemetry.support import Seen, header, records
from tests.producer.support import start_producer

if TYPE_CHECKING:
    from kafkaclient.opentelemetry import KafkaclientInstrumentor
    from kafkaclient.testing.fake import FakeCluster


@pytest.fixture
def direct(instrumentor: KafkaclientInstrumentor) -> Seen:
    """A provider with which spans are made at their end, if the SDK is the known one."""
    seen = Seen()
    instrumentor.instrument(tracer_provider=seen.provider)
    return seen


async def assert_the_sdk_makes_the_spans(fake: FakeCluster, seen: Seen) -> None:
    async with start_producer(fake) as producer:
        await producer.send_and_wait("t", b"1", partition=3)
        await (await producer.send("t", None, b"key", partition=3))
    found = seen.by_traceparent()
    assert {header(r) for _, r in records(fake)} == set(found)
    assert [type(span) for span in seen.spans] == [ReadableSpan, ReadableSpan]
    assert [fact["messaging.kafka.offset"] for fact in seen.facts()] == [0, 1]


@pytest.mark.parametrize("name", ["dropped_events", "attributes", "status", "to_json"])
@virtual_time
async def test_a_span_that_an_exporter_could_not_read(
    name: str, fake: FakeCluster, direct: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = getattr(ReadableSpan, name)

    def read(span: Any) -> Any:
        if type(span) is direct_spans.DirectSpan:
            raise AttributeError("_new_private_name")
        return usual.fget(span)

    monkeypatch.setattr(ReadableSpan, name, read if name == "to_json" else property(read))
    await assert_the_sdk_makes_the_spans(fake, direct)


@virtual_time
async def test_a_span_that_cannot_be_made(
    fake: FakeCluster, direct: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(direct_spans, "BoundedAttributes")
    await assert_the_sdk_makes_the_spans(fake, direct)


@virtual_time
async def test_a_name_that_cannot_be_imported(
    fake: FakeCluster, direct: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kafkaclient.opentelemetry.direct_spans", None)
    await assert_the_sdk_makes_the_spans(fake, direct)


@pytest.mark.parametrize("later", [False, True])
@virtual_time
async def test_propagators_that_cannot_be_looked_into(
    later: bool, fake: FakeCluster, direct: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: Any = propagate.get_global_textmap()
    parts = usual._propagators
    renamed = CompositePropagator(parts)
    del renamed._propagators

    def inject(_: Any, carrier: Any, context: Any = None, setter: Any = None) -> None:
        for part in parts:
            part.inject(carrier, context, setter)

    async with start_producer(fake) as producer:
        if later:
            await producer.send_and_wait("t", b"1")
        monkeypatch.setattr(CompositePropagator, "inject", inject)
        monkeypatch.setattr(CompositePropagator, "fields", usual.fields)
        propagate.set_global_textmap(renamed)
        try:
            await producer.send_and_wait("t", b"2")
            await producer.send_and_wait("t", b"3", headers={"own": b"1"})
        finally:
            propagate.set_global_textmap(usual)
    kinds = [type(span) for span in direct.spans]
    assert kinds == [direct_spans.DirectSpan] * later + [ReadableSpan] * 2
    assert {header(r) for _, r in records(fake)} == set(direct.by_traceparent())


@virtual_time
async def test_a_context_that_is_kept_elsewhere(
    fake: FakeCluster, instrumentor: KafkaclientInstrumentor, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = context_api._RUNTIME_CONTEXT

    class Elsewhere:
        attach, detach, get_current = usual.attach, usual.detach, usual.get_current

    monkeypatch.setattr(context_api, "_RUNTIME_CONTEXT", Elsewhere())
    seen = Seen()
    instrumentor.instrument(tracer_provider=seen.provider)
    parent = SpanContext(5, 6, True, TraceFlags(TraceFlags.SAMPLED))
    async with start_producer(fake) as producer:
        token = context_api.attach(trace.set_span_in_context(NonRecordingSpan(parent)))
        await producer.send_and_wait("t", b"1")
        context_api.detach(token)
        await producer.send_and_wait("t", b"2")
    child, root = seen.spans
    assert (child.parent, root.parent) == (parent, None)


@pytest.mark.parametrize(
    "missing",
    [
        "opentelemetry.semconv._incubating",
        "opentelemetry.semconv._incubating.attributes",
        "opentelemetry.instrumentation",
    ],
)
def test_a_missing_package_is_named_with_the_extra(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import kafkaclient.opentelemetry"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    last = found.stderr.splitlines()[-1]
    assert last.startswith("ImportError: kafkaclient.opentelemetry needs OpenTelemetry's packages")
    assert missing in last
    assert last.endswith("pip install 'kafkaclient[opentelemetry]'")
