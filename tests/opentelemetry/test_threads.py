"""One instrumentation, producers in several threads: no record gets what another's thread has."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from kafkaclient import Producer
from kafkaclient.testing.fake import FakeCluster
from tests.opentelemetry.support import header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace.sampling import Sampler

    from kafkaclient.opentelemetry import KafkaclientInstrumentor

_THREADS = 3
_IN_A_CONTEXT = 3  # records


class Ended(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


async def wrong_contexts(thread: int, flags: int, records: int) -> list[tuple[str, str | None]]:
    """The records of one producer that carry another trace than the one they were sent in."""
    fake = FakeCluster(1)
    fake.create_topic("t", 1, 1)
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        await producer.partitions_for("t")
        for n in range(records // _IN_A_CONTEXT):
            parent = SpanContext((thread + 1) << 64 | n + 1, n + 1, True, TraceFlags(flags))
            token = context.attach(trace.set_span_in_context(NonRecordingSpan(parent)))
            for _ in range(_IN_A_CONTEXT):
                producer.send_nowait("t", b"%032x" % parent.trace_id)
            context.detach(token)
            if n % 100 == 0:
                await producer.flush()
    found = [((r.value or b"").decode(), header(r)) for r in fake.log("t", 0)]
    assert len(found) == records
    return [(trace_id, told) for trace_id, told in found if f"00-{trace_id}-" not in (told or "")]


@pytest.mark.parametrize(
    ("sampler", "flags", "count"),  # enough for many mistakes if threads share a record's answers
    [
        pytest.param(ParentBased(ALWAYS_OFF), TraceFlags.DEFAULT, 12_000, id="unsampled"),
        pytest.param(ParentBased(ALWAYS_ON), TraceFlags.SAMPLED, 4_500, id="sampled"),
    ],
)
def test_each_record_carries_the_context_of_its_own_thread(
    sampler: Sampler,
    flags: int,
    count: int,
    hasty_threads: None,
    instrumentor: KafkaclientInstrumentor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    ended = Ended()
    provider.add_span_processor(ended)
    instrumentor.instrument(tracer_provider=provider)

    def send(thread: int) -> list[tuple[str, str | None]]:
        return asyncio.run(wrong_contexts(thread, flags, count))

    with ThreadPoolExecutor(_THREADS) as threads:
        for wrong in threads.map(send, range(_THREADS)):
            assert not wrong
    # A loop may stand still: the threads take turns.
    assert not [record for record in caplog.records if "wakeup" not in record.name]
    span_ids = {span.context.span_id for span in ended.spans if span.context is not None}
    assert len(span_ids) == len(ended.spans) == flags * _THREADS * count
