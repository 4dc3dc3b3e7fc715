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
from random import getrandbits
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api
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
    key_text,
    server,
)
from kafkaclient.opentelemetry.headers import pairs_of, with_pairs
from kafkaclient.opentelemetry.sending import NO_VARIABLES, when_done
from kafkaclient.types import NO_OFFSET

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.opentelemetry.headers import Pairs
    from kafkaclient.producer.batches.delivery import Delivery

_MANY = 32  # attributes: more than a span of a record has
_INTERNAL_METRICS = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"
_TRACEPARENT = "traceparent"
_OK = Status(StatusCode.UNSET)
_ERROR = Status(StatusCode.ERROR)
_UNKNOWN = Status(StatusCode.ERROR, "the outcome is not known")
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
    """Starts :class:`DirectSpan` with the tracer of an SDK."""

    def __init__(self, tracer: Tracer, *, record_keys: bool) -> None:
        self._record_keys = record_keys
        self.tracer = tracer
        self._trace_id = tracer.id_generator.generate_trace_id
        random = getattr(tracer.id_generator, "is_trace_id_random", bool)()
        self._random = int(getattr(TraceFlags, "RANDOM_TRACE_ID", 0)) if random else 0
        self._root_flags = TraceFlags(TraceFlags.SAMPLED | self._random)
        self._processors: object = None
        """The processors and the propagator that were found to be fit."""
        self._propagator: object = None
        self._fit = False
        self._context: Context | None = None
        """The context of the latest record, its span context, and the pairs that follow from it."""
        self._parent: SpanContext | None = None
        self._flags = self._root_flags
        self._pairs: Pairs = ()

    def is_fit(self) -> bool:
        """Whether nothing can tell the difference at this moment."""
        processors = getattr(self.tracer.span_processor, "_span_processors", None)
        propagator = propagate.get_global_textmap()
        if processors is not self._processors or propagator is not self._propagator:
            self._processors, self._propagator = processors, propagator
            self._fit = (
                processors is not None and all(map(_is_passive, processors)) and _is_w3c(propagator)
            )
            self._context = None
        return self._fit

    def start_record(
        self, producer: Any, topic: Any, value: Any, key: Any, partition: Any, headers: Any
    ) -> tuple[DirectSpan, Any]:
        """As ``Spans.start_record``, for headers without a context of the caller's own."""
        context = context_api.get_current()
        if context is not self._context:
            self._take_up(context)
        parent = self._parent
        trace_id = self._trace_id() if parent is None else parent.trace_id
        span_id = getrandbits(64) or 1
        span = DirectSpan(
            self,
            described(producer.config.client_id, topic),
            SpanContext(
                trace_id,
                span_id,
                False,
                self._flags,
                None if parent is None else parent.trace_state,
            ),
            parent,
            producer._core,
        )
        if value is None:
            span.tombstone = True
        if self._record_keys and key is not None:
            span.key = key_text(key)
        if type(partition) is int:
            span.partition = partition
        pairs = (
            (_TRACEPARENT, b"00-%032x-%016x-%02x" % (trace_id, span_id, self._flags)),
            *self._pairs,
        )
        return span, with_pairs(headers, pairs) if headers else pairs

    def _take_up(self, context: Context) -> None:
        parent = trace.get_current_span(context).get_span_context()
        self._context = context
        self._parent = parent if parent.is_valid else None
        if self._parent is None:
            self._flags = self._root_flags
        else:
            self._flags = TraceFlags(TraceFlags.SAMPLED | (parent.trace_flags & self._random))
        self._pairs = ()
        if context:
            self._pairs = tuple([pair for pair in pairs_of(context) if pair[0] != _TRACEPARENT])


class DirectSpan(ReadableSpan):
    """The span of one record. It ends once."""

    # The names with an underscore are ReadableSpan's own. Those that are missing here are made when
    # they are first read, see __getattr__.
    __slots__ = (
        "_context",
        "_core",
        "_delivery",
        "_described",
        "_end_time",
        "_ended",
        "_failure",
        "_maker",
        "_offset",
        "_parent",
        "_start_time",
        "_status",
        "_view",
        "key",
        "partition",
        "tombstone",
    )

    def __init__(
        self,
        maker: DirectSpans,
        name_and_attributes: tuple[str, dict[str, AttributeValue]],
        context: SpanContext,
        parent: SpanContext | None,
        core: Any,
    ) -> None:
        self._maker = maker
        self._described = name_and_attributes
        self._context = context
        self._parent = parent
        self._core = core
        self._status = _OK
        self._delivery: Delivery | None = None
        self._failure: tuple[str, bool | None] | None = None
        self._offset = NO_OFFSET
        self._view: ClusterView | None = None
        self._ended = self.tombstone = False
        self.key: str | None = None
        self.partition = -1
        self._end_time = 0
        self._start_time = time_ns()

    def __del__(self) -> None:
        if self._delivery is not None:  # the event loop ended, and no outcome came
            self._delivery = None
            self._finish(_UNKNOWN)

    def follow(self, delivery: Delivery) -> None:
        """End the span with the delivery's outcome, without looking at it in the user's place."""
        self._delivery = delivery
        when_done(delivery, DirectSpan._end, self, NO_VARIABLES)

    def end_raised(self, error: BaseException) -> None:
        """The call raised: the record was not sent."""
        self._fail(error)

    def _end(self) -> None:
        delivery, self._delivery = self._delivery, None
        assert delivery is not None
        batch_result, index = delivery._batch_result.resolve_index(delivery._index)
        self.partition = batch_result.partition
        error = batch_result.error
        if error is not None:
            self._fail(batch_result.error_of(index) or error)
            return
        offset = batch_result.base_offset
        if offset != NO_OFFSET:
            self._offset = offset + index
        if self._core is not None:
            self._view = self._core.metadata.view
        self._finish(_OK)

    def _fail(self, error: BaseException) -> None:
        # The error would keep its traceback until the span is exported.
        self._failure = error_type(error), getattr(error, "maybe_written", None)
        self._finish(_ERROR)

    def _finish(self, status: Status) -> None:
        self._core = None
        self._status = status
        self._end_time = time_ns()
        self._maker.tracer.span_processor.on_end(self)

    def __getattr__(self, name: str) -> Any:
        if name not in _MADE_LATE:
            raise AttributeError(name)
        tracer = self._maker.tracer
        ReadableSpan.__init__(
            self,
            name=self._described[0],
            context=self._context,
            parent=self._parent,
            resource=tracer.resource,
            attributes=self._made_attributes(),
            kind=SpanKind.PRODUCER,
            instrumentation_info=tracer.instrumentation_info,
            status=self._status,
            start_time=self._start_time,
            end_time=self._end_time or None,
            instrumentation_scope=tracer._instrumentation_scope,
        )
        return object.__getattribute__(self, name)

    def _made_attributes(self) -> BoundedAttributes:
        _name, attributes = self._described
        found: dict[str, AttributeValue] = dict(attributes)
        if self.tombstone:
            found[names.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] = True
        if self.key is not None:
            found[names.MESSAGING_KAFKA_MESSAGE_KEY] = self.key
        if self.partition >= 0:
            found[names.MESSAGING_DESTINATION_PARTITION_ID] = str(self.partition)
        if self._offset != NO_OFFSET:
            found[names.MESSAGING_KAFKA_OFFSET] = self._offset
        if self._view is not None:
            topic = str(attributes[names.MESSAGING_DESTINATION_NAME])
            found.update(server(self._view, topic, self.partition))
        if self._failure is not None:
            found[ERROR_TYPE], maybe_written = self._failure
            if maybe_written is not None:
                found[MAYBE_WRITTEN] = maybe_written
        return BoundedAttributes(attributes=found, immutable=False)


_MADE_LATE = frozenset(
    (
        "_attributes",
        "_events",
        "_instrumentation_info",
        "_instrumentation_scope",
        "_kind",
        "_links",
        "_name",
        "_resource",
    )
)


def direct_spans(tracer: Any, *, record_keys: bool) -> DirectSpans | None:
    """None: spans have to be started by the tracer. Its sampler is a known one of the SDK's."""
    try:
        limits = tracer._span_limits
        plain = (
            limits.max_span_attribute_length is None
            and (limits.max_span_attributes is None or limits.max_span_attributes >= _MANY)
            and tracer._is_enabled()
            and tracer.resource is not None
            and os.environ.get(_INTERNAL_METRICS, "").strip().lower() != "true"
        )
        return DirectSpans(tracer, record_keys=record_keys) if plain else None
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
