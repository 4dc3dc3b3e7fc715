"""What consumers do: a span for each batch that is received, one for a record in process; metrics.

The SDK's samplers decide on each span. Producers have another tracer: it draws trace ids for
records that were sampled already.
"""

from __future__ import annotations

import time
import weakref
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import metrics, trace
from opentelemetry.context import attach, detach, get_current
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.trace import Link, SpanKind

from kafkaclient import __version__
from kafkaclient.hooks import ConsumedBatch, FinishedCommit, Hooks
from kafkaclient.opentelemetry.attributes import (
    BATCH_COUNT,
    ERROR_TYPE,
    FAILURES,
    broker_attributes,
    end_failed,
    error_type,
    failure_attributes,
    harmless,
    place_attributes,
    record_attributes,
    report,
    topic_attributes,
)
from kafkaclient.opentelemetry.headers import context_in, own_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram, MeterProvider
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.types import Headers

_SCOPE = ("kafkaclient.opentelemetry.consumer", __version__)
_MOST_LINKS = 128  # of a span: the SDK's default limit
_NS = 1_000_000_000


class _Instruments(NamedTuple):
    duration: Histogram
    consumed: Counter
    process_duration: Histogram


class Consuming:
    """Makes the spans of any number of consumers, and measures them. A provider that is None is the
    global one, also if it is set later."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        record_keys: bool = False,
    ) -> None:
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider
        self._record_keys = record_keys
        self.stopped = False

    @cached_property
    def _tracer(self) -> Tracer:
        return trace.get_tracer(*_SCOPE, self._tracer_provider)

    @cached_property
    def _instruments(self) -> _Instruments:
        meter = metrics.get_meter(*_SCOPE, self._meter_provider)
        return _Instruments(
            meter.create_histogram(
                "messaging.client.operation.duration",
                "s",
                "Duration of messaging operation initiated by a producer or consumer client.",
            ),
            meter.create_counter(
                "messaging.client.consumed.messages",
                "{message}",
                "Number of messages that were delivered to the application.",
            ),
            meter.create_histogram(
                "messaging.process.duration", "s", "Duration of processing operation."
            ),
        )

    @property
    def is_on(self) -> bool:
        return not self.stopped and is_instrumentation_enabled()

    def received(self, consumer: Any, batch: ConsumedBatch) -> None:
        """A batch is handed out: a span of the wait for it, with links to its records' senders."""
        attributes = _attributes(consumer, batch.topic, "poll", "receive")
        view = _view_of(consumer)
        place = place_attributes(batch.topic, batch.partition, batch.base_offset, view)
        now_ns = time.time_ns()
        span = self._tracer.start_span(
            f"poll {batch.topic}",
            kind=SpanKind.CLIENT,
            attributes=attributes
            | place
            | {BATCH_COUNT: batch.records, "messaging.client.id": consumer.config.client_id},
            start_time=now_ns - int(batch.waited_s * _NS),
        )
        if span.is_recording():
            for context in _senders(batch.contents.headers()):
                span.add_link(context)
        span.end(now_ns)
        if view is not None:
            attributes |= broker_attributes(view.leader(batch.topic, batch.partition))
        self._instruments.consumed.add(batch.records, attributes)
        self._instruments.duration.record(batch.waited_s, attributes)

    def committed(self, consumer: Any, commit: FinishedCommit) -> None:
        """Measure a commit, once for each topic."""
        for topic in {where.topic for where in commit.offsets}:
            attributes = _attributes(consumer, topic, "commit", "settle")
            if commit.error is not None:
                attributes[ERROR_TYPE] = error_type(commit.error)
            self._instruments.duration.record(commit.latency_s, attributes)

    @contextmanager
    def process(self, record: Any, consumer: Any, *, child: bool) -> Iterator[Span]:
        """The span of a record in process, which is the current one meanwhile."""
        attributes = _attributes(consumer, record.topic, "process", "process")
        began = time.perf_counter()
        started = self._start(record, consumer, attributes, child=child) if self.is_on else None
        if started is None:
            yield trace.INVALID_SPAN
            return
        span, context = started
        token = attach(context)
        try:
            yield span
        except BaseException as error:
            self._end(span, attributes | {ERROR_TYPE: error_type(error)}, began, error)
            raise
        else:
            self._end(span, attributes, began, None)
        finally:
            detach(token)

    @harmless("ending a span")
    def _end(
        self,
        span: Span,
        attributes: dict[str, AttributeValue],
        began: float,
        error: BaseException | None,
    ) -> None:
        self._instruments.process_duration.record(time.perf_counter() - began, attributes)
        if error is None:
            span.end()
        else:
            end_failed(span, failure_attributes(error))

    def _start(
        self, record: Any, consumer: Any, attributes: dict[str, AttributeValue], *, child: bool
    ) -> tuple[Span, Context] | None:
        """The span, and the context in which it is the current one."""
        try:
            headers, context = tuple(record.headers), get_current()
            sender = None if child else own_context(headers)
            if child:
                context = context_in(headers, context)
            details = record_attributes(
                tombstone=record.value is None, key=record.key if self._record_keys else None
            ) | place_attributes(record.topic, record.partition, record.offset)
            if consumer is not None:
                details["messaging.client.id"] = consumer.config.client_id
            span = self._tracer.start_span(
                f"process {record.topic}",
                context,
                SpanKind.CONSUMER,
                attributes | details,
                None if sender is None else [Link(sender)],
            )
            return span, trace.set_span_in_context(span, context)
        except FAILURES as error:
            report("starting a span", error)
            return None


class ConsumerHook(Hooks):
    """Tells ``consuming`` what one consumer does. A drop-in whose start has failed gives the hook
    to the next consumer that it stands on."""

    def __init__(self, consuming: Consuming) -> None:
        self.consuming = consuming
        self._consumer: Callable[[], Any] = lambda: None

    def on_start(self, client: Any, /) -> None:
        self._consumer = weakref.ref(client)

    @harmless("following a batch")
    def on_consume(self, batch: ConsumedBatch) -> None:
        consumer = self._consumer()
        if consumer is not None and self.consuming.is_on:
            self.consuming.received(consumer, batch)

    @harmless("measuring a commit")
    def on_commit(self, commit: FinishedCommit) -> None:
        consumer = self._consumer()
        if consumer is not None and self.consuming.is_on:
            self.consuming.committed(consumer, commit)


def _attributes(consumer: Any, topic: str, name: str, kind: str) -> dict[str, AttributeValue]:
    attributes = topic_attributes(topic, name, kind)
    group = None if consumer is None else consumer.config.group_id
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    return attributes


def _view_of(consumer: Any) -> ClusterView | None:
    runtime = consumer._runtime
    return None if runtime is None else runtime.cluster.metadata.view


def _senders(headers: Iterable[Headers]) -> list[SpanContext]:
    """The contexts in the headers of records, each once, and as many as a span may link to."""
    found: dict[int, SpanContext] = {}
    for pairs in headers:
        context = own_context(pairs) if pairs else None
        if context is not None:
            found.setdefault(context.span_id, context)
            if len(found) == _MOST_LINKS:
                break
    return list(found.values())
