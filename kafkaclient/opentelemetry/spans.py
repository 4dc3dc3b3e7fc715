"""The span of one record, or of one call with many records: it ends with the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind

from kafkaclient.opentelemetry.attributes import (
    BATCH_COUNT,
    is_traced_elsewhere,
    place_attributes,
    record_attributes,
    span_description,
)
from kafkaclient.opentelemetry.failures import (
    FAILURES,
    end_failed,
    failure_attributes,
    harmless,
    report,
)
from kafkaclient.opentelemetry.headers import (
    own_context,
    pairs_of,
    readable,
    unsampled_pairs_of,
    with_pairs,
)
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.opentelemetry.headers import Pairs
    from kafkaclient.opentelemetry.sampling import Sampling
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.types import HeadersLike


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
