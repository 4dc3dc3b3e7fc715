"""The span of one record, or of one call with many records: it ends with the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from kafkaclient.opentelemetry.attributes import (
    MAYBE_WRITTEN,
    described,
    error_type,
    is_traced_elsewhere,
    key_text,
    server,
)
from kafkaclient.opentelemetry.headers import own_context, pairs_of, with_pairs
from kafkaclient.opentelemetry.sending import NO_VARIABLES, when_done
from kafkaclient.producer.producer import Producer
from kafkaclient.types import NO_OFFSET

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.opentelemetry.headers import Pairs
    from kafkaclient.opentelemetry.sampling import Sampling
    from kafkaclient.opentelemetry.sending import Started, Starter
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.types import HeadersLike


class Spans:
    """Starts spans. ``record_keys``: keys that are text in UTF-8 become attributes."""

    def __init__(self, sampling: Sampling, *, record_keys: bool) -> None:
        self._sampling = sampling
        self._record_keys = record_keys
        self._tracer: Tracer | None = None

    def start_record(
        self,
        producer: Any,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        headers: HeadersLike,
    ) -> tuple[RecordSpan | Started, HeadersLike]:
        """The span of a record that was sampled, and the record's headers with its context."""
        if type(producer) is not Producer and is_traced_elsewhere(producer):
            return RecordSpan(trace.INVALID_SPAN, None), headers
        created = own_context(headers) if headers else None
        if created is None:
            starter = self._starter()
            started = None
            if starter is not None:
                started = starter.start(producer, topic, value, key, partition)
            if starter is not None and started is not None:
                return started, with_pairs(headers, starter.pairs_of(started))
        own: dict[str, AttributeValue] = {}
        if value is None:
            own[names.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] = True
        if self._record_keys and key is not None:
            text = key_text(key)
            if text is not None:
                own[names.MESSAGING_KAFKA_MESSAGE_KEY] = text
        span, pairs = self.start(producer, topic, partition, own, created)
        record_span = RecordSpan(span, metadata_of(producer))
        return record_span, with_pairs(headers, pairs) if pairs else headers

    def _starter(self) -> Starter | None:
        """Starts the spans of records where that makes no difference."""
        tracer, gate = self._sampling.tracer, self._sampling.gate
        if tracer is not self._tracer:
            self._tracer = tracer
            if self._sampling.is_final:
                from kafkaclient.opentelemetry.direct_spans import (  # noqa: PLC0415 - needs the SDK
                    direct_starter,
                )

                gate.starter = direct_starter(tracer, self._sampling, record_keys=self._record_keys)
        return gate.starter

    def start(
        self,
        producer: Any,
        topic: Any,
        partition: Any,
        own: dict[str, AttributeValue],
        created: trace.SpanContext | None = None,
    ) -> tuple[Span, Pairs]:
        """A span with the attributes ``own``, and the headers that carry its context.

        ``created`` is the context that the caller has put into the record: the span is linked
        to it, and is not put in its place.
        """
        name, attributes = described(producer.config.client_id, topic)
        if type(partition) is int:
            own[names.MESSAGING_DESTINATION_PARTITION_ID] = str(partition)
        current = context_api.get_current()
        span = self._sampling.tracer.start_span(
            name,
            current,
            SpanKind.PRODUCER,
            {**attributes, **own} if own else attributes,
            [Link(created)] if created else None,
        )
        if created or not span.get_span_context().is_valid:
            return span, pairs_of(current) if current and not created else ()
        return span, pairs_of(trace.set_span_in_context(span, current))


class RecordSpan:
    """A span that ends once: with its record's outcome, or with the error that ``send`` raises."""

    __slots__ = ("_delivery", "_metadata", "_span")

    def __init__(self, span: Span, metadata: Metadata | None) -> None:
        self._span = span
        self._metadata = metadata
        self._delivery: Delivery | None = None

    def follow(self, delivery: Delivery) -> None:
        """End the span with the delivery's outcome, without looking at it in the user's place."""
        if self._span.is_recording():
            self._delivery = delivery
            when_done(delivery, RecordSpan._end, self, NO_VARIABLES)

    def end_raised(self, error: BaseException) -> None:
        """The call raised: the record was not sent."""
        end_failed(self._span, error)

    def _end(self) -> None:
        delivery, self._delivery = self._delivery, None
        assert delivery is not None
        batch_result, index = delivery._batch_result.resolve_index(delivery._index)
        partition, span = batch_result.partition, self._span
        found: dict[str, AttributeValue] = {}
        if partition >= 0:
            found[names.MESSAGING_DESTINATION_PARTITION_ID] = str(partition)
        error = batch_result.error_of(index)
        if error is not None:
            end_failed(span, error, found)
            return
        if batch_result.base_offset != NO_OFFSET:
            found[names.MESSAGING_KAFKA_OFFSET] = batch_result.base_offset + index
        if self._metadata is not None:
            found.update(server(self._metadata.view, batch_result.topic, partition))
        span.set_attributes(found)
        span.end()


def end_failed(
    span: Span, error: BaseException, found: dict[str, AttributeValue] | None = None
) -> None:
    """End a span with an error: its kind, not its text, in which user code may have put a value."""
    attributes: dict[str, AttributeValue] = {**(found or {}), ERROR_TYPE: error_type(error)}
    maybe_written = getattr(error, "maybe_written", None)
    if maybe_written is not None:
        attributes[MAYBE_WRITTEN] = bool(maybe_written)
    span.set_attributes(attributes)
    span.set_status(Status(StatusCode.ERROR))
    span.end()


def metadata_of(producer: Any) -> Metadata | None:
    """The metadata of a producer that was started."""
    core = producer._core
    return None if core is None else core.metadata
