"""What the tests of the instrumentation share: a provider that keeps its spans, by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.sampling import Sampler

    from kafkaclient.testing.fake import FakeCluster, FakeRecord


class Seen:
    """A tracer provider, and the spans that ended."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def facts(self) -> list[dict[str, Any]]:
        return [dict(span.attributes or {}) for span in self.spans]

    def by_traceparent(self) -> dict[str, ReadableSpan]:
        """The spans by what the header of their record says; each ended once."""
        found = {traceparent_of(span): span for span in self.spans}
        assert len(found) == len(self.spans)
        return found


def traceparent_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    trace_id, span_id = format_trace_id(context.trace_id), format_span_id(context.span_id)
    return f"00-{trace_id}-{span_id}-{context.trace_flags:02x}"


def header(record: FakeRecord, name: str = "traceparent") -> str | None:
    found = [value for key, value in record.headers if key == name]
    assert len(found) <= 1, f"{name} occurs twice"
    return found[0].decode() if found and found[0] is not None else None


def records(fake: FakeCluster, topic: str = "t", partitions: int = 6) -> list[tuple[int, Any]]:
    """(partition, record) of all records in the logs."""
    return [(p, record) for p in range(partitions) for record in fake.log(topic, p)]
