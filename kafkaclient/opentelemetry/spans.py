"""Which records get a span; and the span of a record or of a call, which ends with the outcome.

The SDK's samplers answer by the parent's span context, and by the trace id alone for a record
without parent. So their answer is kept for all records of one context. For records without parent,
``TraceIdRatioBased`` samples each trace id with the same probability: the number of records up to
the next sampled one is drawn at once, and that record gets a trace id that the sampler accepts.
Other samplers are asked about each record. What a sampler does is told by its description.
"""

from __future__ import annotations

import re
from random import randrange
from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.trace import Link, SpanKind

from kafkaclient import __version__
from kafkaclient.opentelemetry.attributes import (
    BATCH_COUNT,
    FAILURES,
    end_failed,
    failure_attributes,
    harmless,
    is_traced_elsewhere,
    place_attributes,
    record_attributes,
    report,
    span_description,
)
from kafkaclient.opentelemetry.headers import (
    own_context,
    pairs_of,
    readable,
    unsampled_pairs_of,
    with_pairs,
)
from kafkaclient.opentelemetry.sending import SpanGate
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.opentelemetry.headers import Pairs
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.types import HeadersLike


SCOPE = ("kafkaclient.opentelemetry", __version__)
"""The name and the version of the instrumentation, for tracers and meters."""

_SDK = "opentelemetry.sdk.trace.sampling"
_PART = r"AlwaysOnSampler|AlwaysOffSampler|TraceIdRatioBased\{[^{}]*\}"
_KNOWN = re.compile(rf"({_PART})|ParentBased\{{root:({_PART})(?:,\w+:(?:{_PART}))*\}}")
"""Descriptions of samplers whose answer depends on the context alone."""


class Sampling:
    """The sampling of one instrumentation; ``gate`` is what its methods ask.

    ``provider`` None: the global tracer provider, also if the program sets it later.
    """

    def __init__(self, provider: TracerProvider | None) -> None:
        if provider is not None and not hasattr(provider, "get_tracer"):
            raise TypeError(f"tracer_provider must be a TracerProvider, not {provider!r}")
        self._provider = provider
        self._tracer: Tracer | None = None
        self._ratio: float | None = None
        """The share of records without parent that are sampled; None: the sampler is asked."""
        self._by_context = False
        """Whether the sampler's answer is the same for all records of one context."""
        self._stopped = False
        self.gate = SpanGate(context_api.get_current, self._decide)

    def stop(self) -> None:
        """No record gets a span or a context any more."""
        self._stopped = True
        self.gate.stop()

    @property
    def tracer(self) -> Tracer:
        """The tracer; the API's own, which records nothing, until there is a tracer provider."""
        if self._tracer is not None:
            return self._tracer
        provider = self._provider or trace.get_tracer_provider()
        tracer = trace.get_tracer(*SCOPE, provider)
        if not isinstance(provider, trace.ProxyTracerProvider):
            self._use(tracer)
            self._tracer = tracer  # last: another thread uses what is set by now
        return tracer

    def _use(self, tracer: Any) -> None:
        """Find out which of the sampler's answers are known. Two threads may do so at once."""
        sampler = getattr(tracer, "sampler", None)
        try:
            ratio = _root_ratio(sampler)
            self._by_context = ratio is not None
            if ratio is None or (0 < ratio < 1 and not _accepts_drawn_ids(tracer, ratio)):
                return
        except FAILURES as error:
            report("looking at the sampler", error)
            return
        self._ratio = ratio
        self.gate.sample(ratio)

    def _decide(self, context: Context) -> Pairs | None:
        """For :class:`SpanGate`: None if a record in this context gets a span, else its headers."""
        try:
            return self._decided(context)
        except FAILURES as error:
            report("deciding whether a record gets a span", error)
            return ()

    def _decided(self, context: Context) -> Pairs | None:
        if self._stopped or not is_instrumentation_enabled():
            return ()
        tracer: Any = self.tracer
        if self._tracer is None:  # no provider yet: the API propagates the context, no more
            return pairs_of(context) if context else ()
        parent = trace.get_current_span(context).get_span_context()
        if not parent.is_valid:
            if self._ratio is None:
                return None
            if self.gate.skip_record():
                return pairs_of(context) if context else ()  # there may be baggage
            self.gate.draw()
        elif self._by_context:
            kind = SpanKind.PRODUCER
            answer = tracer.sampler.should_sample(context, parent.trace_id, "send", kind)
            if not answer.decision.is_recording():
                headers = unsampled_pairs_of(context)
                self.gate.remember_unsampled(context, headers)
                return headers
        return None


def _root_ratio(sampler: Any) -> float | None:
    """The share of records without parent that a sampler of the SDK's samples. None: it has to be
    asked about each record, also about those with a parent."""
    if type(sampler).__module__ != _SDK:
        return None  # a sampler of the user's own, or a tracer that is not the SDK's
    found = _KNOWN.fullmatch(sampler.get_description())
    if found is None:
        return None
    root = found[1] or found[2]
    always = {"AlwaysOnSampler": 1.0, "AlwaysOffSampler": 0.0}.get(root)
    return float(root.partition("{")[2].rstrip("}")) if always is None else always


def _accepts_drawn_ids(tracer: Any, ratio: float) -> bool:
    """Give the tracer trace ids that the sampler accepts. False: they could not be known, or the
    program makes ids of its own."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415 - no SDK
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased  # noqa: PLC0415

    class AcceptedIds(RandomIdGenerator):
        accepted = True

        def generate_trace_id(self) -> int:
            upper = super().generate_trace_id() >> 64
            return (upper or 1) << 64 | randrange(bound)

    bound = TraceIdRatioBased.get_bound_for_rate(ratio)  # of the lower 64 bits
    results = [tracer.sampler.should_sample(Context(), n, "send") for n in (bound - 1, bound)]
    if [result.decision.is_sampled() for result in results] != [True, False]:
        return False
    if type(tracer.id_generator) is RandomIdGenerator:
        tracer.id_generator = AcceptedIds()  # no other code starts spans with this scope's tracer
    return hasattr(tracer.id_generator, "accepted")  # also of an earlier instrumentation


class Spans:
    """Starts spans. ``record_keys``: keys that are text in UTF-8 become attributes."""

    def __init__(self, sampling: Sampling, *, record_keys: bool) -> None:
        self._sampling = sampling
        self._record_keys = record_keys

    def start_record(
        self,
        producer: Any,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        headers: HeadersLike,
    ) -> tuple[RecordSpan, HeadersLike]:
        """The span of a record that was sampled, and the record's headers with its context."""
        if type(producer) is not Producer and is_traced_elsewhere(producer):
            return RecordSpan(trace.INVALID_SPAN, None), headers
        headers = readable(headers)
        caller_context = own_context(headers) if headers else None
        attributes = record_attributes(
            tombstone=value is None, key=key if self._record_keys else None
        )
        span, pairs = self.start(producer, topic, partition, attributes, caller_context)
        record_span = RecordSpan(span, metadata_of(producer))
        return record_span, with_pairs(headers, pairs) if pairs else headers

    def start(
        self,
        producer: Any,
        topic: Any,
        partition: Any,
        attributes: dict[str, AttributeValue],
        caller_context: trace.SpanContext | None = None,
    ) -> tuple[Span, Pairs]:
        """A span with these attributes, and the headers that carry its context.

        ``caller_context`` is the context that the caller has put into the headers: the span is
        linked to it, and does not replace it. If the sampler or a span processor raises, the record
        has no span; if the propagator raises, it has no headers.
        """
        span: Span = trace.INVALID_SPAN
        try:
            current = context_api.get_current()
            name, common = span_description(producer.config.client_id, topic)
            if type(partition) is int:
                attributes |= place_attributes(topic, partition)
            span = self._sampling.tracer.start_span(
                name,
                current,
                SpanKind.PRODUCER,
                {**common, **attributes} if attributes else common,
                [Link(caller_context)] if caller_context else None,
            )
            return span, () if caller_context else _pairs_with(span, current)
        except FAILURES as error:
            report("starting a span", error)
            return span, ()


def _pairs_with(span: Span, current: Context) -> Pairs:
    """The headers with the context of a span that was started in ``current``."""
    span_context = span.get_span_context()
    if not span_context.is_valid:  # no SDK: the API propagates the context, no more
        return pairs_of(current) if current else ()
    if not span.is_recording() and not span_context.trace_flags.sampled:
        # No span has the id that the SDK has made.
        return unsampled_pairs_of(current) if current else ()
    return pairs_of(trace.set_span_in_context(span, current))


class RecordSpan:
    """A span that ends once: with its record's outcome, or with the error that ``send`` raises."""

    __slots__ = ("_delivery", "_metadata", "_span")

    def __init__(self, span: Span, metadata: Metadata | None) -> None:
        self._span = span
        self._metadata = metadata
        self._delivery: Delivery | None = None

    @harmless("starting a span")
    def set_count(self, records: int) -> None:
        """The number of records in a batch that is sent as one."""
        self._span.set_attribute(BATCH_COUNT, records)

    @harmless("following a record")
    def follow(self, delivery: Delivery) -> None:
        """End the span with the delivery's outcome, without looking at it in the user's place."""
        if self._span.is_recording():
            self._delivery = delivery
            delivery.when_settled(RecordSpan._end, self)

    @harmless("ending a span")
    def end_raised(self, error: BaseException) -> None:
        """The call raised: the record was not sent."""
        end_failed(self._span, failure_attributes(error))

    @harmless("ending a span")
    def _end(self) -> None:
        delivery, self._delivery = self._delivery, None
        assert delivery is not None
        topic, partition, offset, error = delivery.peek()
        if error is not None:
            place = place_attributes(topic, partition)
            end_failed(self._span, {**place, **failure_attributes(error)})
            return
        view = None if self._metadata is None else self._metadata.view
        self._span.set_attributes(place_attributes(topic, partition, offset, view))
        self._span.end()


def metadata_of(producer: Any) -> Metadata | None:
    """The metadata of a producer that was started."""
    core = producer._core
    return None if core is None else core.metadata
