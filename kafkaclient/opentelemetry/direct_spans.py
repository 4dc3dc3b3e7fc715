"""Spans for records without the SDK's work at the start: made of what the record's end has found.

The SDK takes as long for one span as a producer for a hundred records. Most of it prepares for what
no span of a record has: events, further attributes, changes in another thread. A
:class:`DirectSpan` is the read-only span that the SDK's processors get at the end of a span. It
takes its ids and its time when the record is sent, and its attributes when an exporter reads it.

It is used with the SDK's tracer, samplers and random ids, with span processors that do nothing at
the start of a span, with the SDK's default span limits, and with the W3C propagators. Elsewhere
:class:`~kafkaclient.opentelemetry.spans.Spans` asks the tracer.

Some names of the SDK are private: ``Tracer._span_limits``, ``_is_enabled`` and
``_instrumentation_scope``, ``_span_processors`` and ``_on_ending`` of span processors,
``CompositePropagator._propagators`` and ``ReadableSpan._context``. :func:`direct_spans` makes two
spans and reads all of them; the tracer makes the spans if anything raises an error.
"""

from __future__ import annotations

import os
from inspect import unwrap
from time import time_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from opentelemetry import propagate, trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.semconv._incubating.attributes.messaging_attributes import (
    MESSAGING_DESTINATION_NAME,
)
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kafkaclient.errors import KafkaError
from kafkaclient.opentelemetry.attributes import (
    failure_attributes,
    is_traced_elsewhere,
    key_text,
    place_attributes,
    record_attributes,
    span_description,
)
from kafkaclient.opentelemetry.failures import FAILURES, report
from kafkaclient.opentelemetry.headers import pairs_of
from kafkaclient.opentelemetry.pending_spans import TRACEPARENT, PendingSpan, PendingSpans
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.opentelemetry.sampling import Sampling

_AllowedBy: TypeAlias = tuple[object, object, bool]

_MANY = 32  # attributes: more than a span of a record has
_INTERNAL_METRICS = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"
_OK = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)
_PASSIVE_STARTS = (
    SpanProcessor.on_start,
    BatchSpanProcessor.on_start,
    SimpleSpanProcessor.on_start,
)
_PASSIVE_ENDINGS = tuple(
    getattr(kind, "_on_ending", None)
    for kind in (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
)


class DirectSpans:
    """Makes a :class:`DirectSpan` of what :attr:`pending` has kept, at its end."""

    def __init__(self, tracer: Tracer, sampling: Sampling, *, record_keys: bool) -> None:
        self.tracer = tracer
        random = getattr(tracer.id_generator, "is_trace_id_random", bool)()
        self._random = int(getattr(TraceFlags, "RANDOM_TRACE_ID", 0)) if random else 0
        self._root_flags = TraceFlags.SAMPLED | self._random
        self._all_flags = [TraceFlags(flags) for flags in range(256)]
        self._checked: _AllowedBy = (None, None, False)
        """The processors and the propagator that were checked, and whether they allow direct
        spans. Replaced as a whole: several threads ask."""
        self.pending = PendingSpans(
            sampling.variable, self, Producer, is_traced_elsewhere, sampling.bound, record_keys
        )

    def allowed_by(self) -> _AllowedBy | None:
        """The tracer's processors and the propagator, if they allow direct spans now; None if they
        do not. The same object as long as both stay."""
        checked = self._checked
        try:
            processors = self.tracer.span_processor._span_processors
            propagator = propagate.get_global_textmap()
            if processors is not checked[0] or propagator is not checked[1]:
                allowed = all(map(_is_passive, processors)) and _is_w3c(propagator)
                self._checked = checked = (processors, propagator, allowed)
        except Exception:  # noqa: BLE001 - other processors, or another version of the SDK
            return None
        return checked if checked[2] else None

    def facts_of(self, context: Context, allowed_by: _AllowedBy) -> tuple[Any, ...] | None:
        """``(context, allowed_by, parent, flags, headers)`` of spans that start in ``context``.
        None: the tracer has to start them."""
        try:
            parent = trace.get_current_span(context).get_span_context()
            headers = pairs_of(context) if context else ()
            headers = tuple([pair for pair in headers if pair[0] != TRACEPARENT])
            if not parent.is_valid:
                return context, allowed_by, None, self._root_flags, headers
            flags = TraceFlags.SAMPLED | (parent.trace_flags & self._random)
        except Exception:  # noqa: BLE001 - the tracer says what is wrong
            return None
        return context, allowed_by, parent, flags, headers

    def describe(self, producer: Any, topic: Any) -> tuple[str, dict[str, AttributeValue]]:
        """The span's name, and its attributes that do not depend on the record."""
        return span_description(producer.config.client_id, topic)

    def key_text(self, key: Any) -> str | None:
        """A key as text; None if it has no text."""
        return key_text(key)

    def finish(
        self, pending: PendingSpan, partition: int, offset: int, error: BaseException | None
    ) -> None:
        """End the span of a record that has its outcome."""
        try:
            self.tracer.span_processor.on_end(self.made_span(pending, partition, offset, error))
        except FAILURES as failure:
            report("ending a span", failure)

    def made_span(
        self, pending: PendingSpan, partition: int, offset: int, error: BaseException | None
    ) -> DirectSpan:
        """The span of a record that has its outcome."""
        span = DirectSpan(self.tracer, pending, partition, offset)
        parent = pending.parent
        span._context = SpanContext(
            pending.trace_id,
            pending.span_id,
            False,
            self._all_flags[pending.flags],
            None if parent is None else parent.trace_state,
        )
        if error is not None:
            # The error would keep its traceback until the span is exported.
            span.failure = failure_attributes(error)
            span.status_now = _ERROR
        else:
            span.view = pending.core.metadata.view
        return span


class DirectSpan(ReadableSpan):
    """The span of one record, when it has ended."""

    # What ReadableSpan keeps beside its context is made when it is first read, see __getattr__.
    __slots__ = (
        "_context",
        "_pending",
        "_tracer",
        "end_ns",
        "failure",
        "offset",
        "partition",
        "status_now",
        "view",
    )

    def __init__(self, tracer: Tracer, pending: PendingSpan, partition: int, offset: int) -> None:
        self._tracer = tracer
        self._pending: PendingSpan | None = pending
        self.partition = partition
        self.offset = offset
        self.status_now = _OK
        self.failure: dict[str, AttributeValue] | None = None
        self.view: ClusterView | None = None
        self.end_ns = time_ns()

    def __getattr__(self, name: str) -> Any:
        pending = self._pending
        if pending is not None:  # two threads may come here: both make the same
            ReadableSpan.__init__(
                self,
                name=pending.description[0],
                context=self._context,
                parent=pending.parent,
                resource=self._tracer.resource,
                attributes=self._made_attributes(pending),
                kind=SpanKind.PRODUCER,
                instrumentation_info=self._tracer.instrumentation_info,
                status=self.status_now,
                start_time=pending.start_ns,
                end_time=self.end_ns,
                instrumentation_scope=self._tracer._instrumentation_scope,
            )
            self._pending = None
        return object.__getattribute__(self, name)

    def _made_attributes(self, pending: PendingSpan) -> BoundedAttributes:
        common = pending.description[1]
        topic = str(common[MESSAGING_DESTINATION_NAME])
        attributes: dict[str, AttributeValue] = {
            **common,
            **record_attributes(tombstone=pending.tombstone, key=pending.key),
            **place_attributes(topic, self.partition, self.offset, self.view),
            **(self.failure or {}),
        }
        return BoundedAttributes(attributes=attributes, immutable=False)


def direct_spans(tracer: Any, sampling: Sampling, *, record_keys: bool) -> PendingSpans | None:
    """What starts spans with this tracer, whose sampler is a known one of the SDK's. None: the
    tracer has to start them. Any error says the same: the SDK has changed."""
    limits = tracer._span_limits
    plain = (
        limits.max_span_attribute_length is None
        and (limits.max_span_attributes is None or limits.max_span_attributes >= _MANY)
        and tracer._is_enabled()
        and tracer.resource is not None
        and os.environ.get(_INTERNAL_METRICS, "").strip().lower() != "true"
    )
    if not plain:
        return None
    spans = DirectSpans(tracer, sampling, record_keys=record_keys)
    _try_spans(spans)
    return spans.pending


def _try_spans(spans: DirectSpans) -> None:
    """Make the spans of two records that are never sent, and read them as an exporter does."""
    leader = SimpleNamespace(host="localhost", port=9092)
    view = SimpleNamespace(leader=lambda *_: leader)
    producer = SimpleNamespace(
        config=SimpleNamespace(client_id=""),
        _core=SimpleNamespace(metadata=SimpleNamespace(view=view)),
    )
    parent = SpanContext(1, 2, is_remote=True)
    for error in (None, KafkaError("")):
        facts = (None, None, parent, spans._root_flags, ())
        pending, _ = spans.pending.start_with(facts, producer, "", None, "", 0)
        span = spans.made_span(pending, 0, 0, error)
        context = span.context
        if context is None or context.trace_id != 1 or context is not span.get_span_context():
            raise ValueError("the SDK keeps a span's context elsewhere")
        for name in dir(ReadableSpan):
            member = getattr(ReadableSpan, name)
            if isinstance(member, property) and not name.startswith("_"):
                unwrap(member.fget)(span)  # type: ignore[arg-type]  # no warning if deprecated
        span.to_json()


def _is_passive(processor: Any) -> bool:
    kind = type(processor)
    return (
        kind.on_start in _PASSIVE_STARTS and getattr(kind, "_on_ending", None) in _PASSIVE_ENDINGS
    )


def _is_w3c(propagator: Any) -> bool:
    if type(propagator) is not CompositePropagator:
        return False
    parts = {type(part) for part in propagator._propagators}
    return TraceContextTextMapPropagator in parts and parts <= {
        TraceContextTextMapPropagator,
        W3CBaggagePropagator,
    }
