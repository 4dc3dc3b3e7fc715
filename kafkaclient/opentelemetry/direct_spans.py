"""Spans for records without the SDK's work at the start: made of what the record's end has found.

The SDK takes as long for one span as a producer for a hundred records. Most of it prepares for what
no span of a record has: events, further attributes, changes in another thread. A
:class:`DirectSpan` is the read-only span that the SDK's processors get at the end of a span. It
takes its ids and its time when the record is sent, and its attributes when an exporter reads it.

It is used where nothing can tell the difference: with the SDK's tracer, samplers and random ids,
with span processors that do nothing at the start of a span, with the SDK's default span limits, and
with the W3C propagators. Elsewhere :class:`~kafkaclient.opentelemetry.spans.Spans` asks the tracer.
"""

from __future__ import annotations

import os
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kafkaclient.opentelemetry.attributes import (
    MAYBE_WRITTEN,
    described,
    error_type,
    is_traced_elsewhere,
    key_text,
    server,
)
from kafkaclient.opentelemetry.headers import pairs_of
from kafkaclient.opentelemetry.sending import TRACEPARENT, Started, Starter
from kafkaclient.producer.producer import Producer
from kafkaclient.types import NO_OFFSET

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.opentelemetry.sampling import Sampling

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
    """Makes a :class:`DirectSpan` of what :attr:`starter` has kept, at its end."""

    def __init__(self, tracer: Tracer, sampling: Sampling, *, record_keys: bool) -> None:
        self.tracer = tracer
        random = getattr(tracer.id_generator, "is_trace_id_random", bool)()
        self._random = int(getattr(TraceFlags, "RANDOM_TRACE_ID", 0)) if random else 0
        self._root_flags = TraceFlags.SAMPLED | self._random
        self._all_flags = [TraceFlags(flags) for flags in range(256)]
        self._processors: object = None
        """The processors and the propagator that were looked at, and whether they are fit."""
        self._propagator: object = None
        self._fit = False
        self.starter = Starter(
            sampling.variable, self, Producer, is_traced_elsewhere, sampling.bound, record_keys
        )

    def is_fit(self) -> bool:
        """Whether nothing can tell the difference at this moment."""
        processors = getattr(self.tracer.span_processor, "_span_processors", None)
        propagator = propagate.get_global_textmap()
        if processors is not self._processors or propagator is not self._propagator:
            self._processors, self._propagator = processors, propagator
            self._fit = (
                processors is not None and all(map(_is_passive, processors)) and _is_w3c(propagator)
            )
            self.starter.context = None
        return self._fit

    def take_up(self, context: Context) -> None:
        """The records to come are sent in this context."""
        starter, parent = self.starter, trace.get_current_span(context).get_span_context()
        starter.parent, starter.flags = None, self._root_flags
        if parent.is_valid:
            starter.parent = parent
            starter.flags = TraceFlags.SAMPLED | (parent.trace_flags & self._random)
        pairs = pairs_of(context) if context else ()
        starter.pairs = tuple([pair for pair in pairs if pair[0] != TRACEPARENT])
        starter.context = context

    def describe(self, producer: Any, topic: Any) -> tuple[str, dict[str, AttributeValue]]:
        """The span's name, and its attributes that do not depend on the record."""
        return described(producer.config.client_id, topic)

    def finish(
        self, started: Started, partition: int, offset: int, error: BaseException | None
    ) -> None:
        """Make the span of a record that has its outcome."""
        span = DirectSpan(self.tracer, started, partition, offset)
        parent = started.parent
        span._context = SpanContext(
            started.trace_id,
            started.span_id,
            False,
            self._all_flags[started.flags],
            None if parent is None else parent.trace_state,
        )
        if error is not None:
            # The error would keep its traceback until the span is exported.
            span.failure = error_type(error), getattr(error, "maybe_written", None)
            span.status_now = _ERROR
        else:
            span.view = started.core.metadata.view
        self.tracer.span_processor.on_end(span)


class DirectSpan(ReadableSpan):
    """The span of one record, when it has ended."""

    # What ReadableSpan keeps beside its context is made when it is first read, see __getattr__.
    __slots__ = (
        "_context",
        "_started",
        "_tracer",
        "end_ns",
        "failure",
        "offset",
        "partition",
        "status_now",
        "view",
    )

    def __init__(self, tracer: Tracer, started: Started, partition: int, offset: int) -> None:
        self._tracer = tracer
        self._started = started
        self.partition = partition
        self.offset = offset
        self.status_now = _OK
        self.failure: tuple[str, bool | None] | None = None
        self.view: ClusterView | None = None
        self.end_ns = time_ns()

    def __getattr__(self, name: str) -> Any:
        if name not in _MADE_LATE:
            raise AttributeError(name)
        tracer, started = self._tracer, self._started
        ReadableSpan.__init__(
            self,
            name=started.described[0],
            context=self._context,
            parent=started.parent,
            resource=tracer.resource,
            attributes=self._made_attributes(started),
            kind=SpanKind.PRODUCER,
            instrumentation_info=tracer.instrumentation_info,
            status=self.status_now,
            start_time=started.start_ns,
            end_time=self.end_ns,
            instrumentation_scope=tracer._instrumentation_scope,
        )
        return object.__getattribute__(self, name)

    def _made_attributes(self, started: Started) -> BoundedAttributes:
        attributes = started.described[1]
        found: dict[str, AttributeValue] = dict(attributes)
        key = None if started.key is None else key_text(started.key)
        if started.tombstone:
            found[names.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] = True
        if key is not None:
            found[names.MESSAGING_KAFKA_MESSAGE_KEY] = key
        if self.partition >= 0:
            found[names.MESSAGING_DESTINATION_PARTITION_ID] = str(self.partition)
        if self.offset != NO_OFFSET:
            found[names.MESSAGING_KAFKA_OFFSET] = self.offset
        if self.view is not None:
            topic = str(attributes[names.MESSAGING_DESTINATION_NAME])
            found.update(server(self.view, topic, self.partition))
        if self.failure is not None:
            found[ERROR_TYPE], maybe_written = self.failure
            if maybe_written is not None:
                found[MAYBE_WRITTEN] = maybe_written
        return BoundedAttributes(attributes=found, immutable=False)


_MADE_LATE = frozenset(
    (
        "_attributes",
        "_end_time",
        "_events",
        "_instrumentation_info",
        "_instrumentation_scope",
        "_kind",
        "_links",
        "_name",
        "_parent",
        "_resource",
        "_start_time",
        "_status",
    )
)


def direct_starter(tracer: Any, sampling: Sampling, *, record_keys: bool) -> Starter | None:
    """What starts spans with this tracer, whose sampler is a known one of the SDK's. None: the
    tracer has to start them."""
    try:
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
        return DirectSpans(tracer, sampling, record_keys=record_keys).starter
    except AttributeError:  # another version of the SDK
        return None


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
