"""``send_many``, ``send_arrow`` and ``send_batch`` with one span for each call."""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry import trace

from kafkaclient.opentelemetry.attributes import (
    BATCH_COUNT,
    MAYBE_WRITTEN,
    end_failed,
    failure_attributes,
    harmless,
    place_attributes,
)
from kafkaclient.opentelemetry.headers import own_context, readable, with_pairs
from kafkaclient.opentelemetry.spans import RecordSpan, metadata_of
from kafkaclient.producer.producer import Producer
from kafkaclient.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from kafkaclient import BulkDelivery, Delivery, RecordBatchBuilder
    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.opentelemetry.headers import Pairs
    from kafkaclient.opentelemetry.sending import SpanGate
    from kafkaclient.opentelemetry.spans import Spans
    from kafkaclient.types import HeadersLike

D = TypeVar("D")

FAILED_RECORDS = "kafkaclient.failed_records"
"""Of a failed call with many records: how many of them failed. No name of a convention."""


class BulkSpan:
    """The span of one call, which ends when each of its records has an outcome. ``records`` is the
    number of the call's records; None: it is known at the end only."""

    __slots__ = ("_delivery", "_metadata", "_records", "_refusal", "_span")

    def __init__(self, span: Span, metadata: Metadata | None, records: int | None) -> None:
        self._span = span
        self._metadata = metadata
        self._records = records
        self._refusal: dict[str, AttributeValue] | None = None
        """The attributes of the error that the call raised."""
        self._delivery: BulkDelivery | None = None

    @harmless("following a call with many records")
    def follow(self, delivery: BulkDelivery) -> None:
        """End the span with the outcome, without looking at it in the user's place."""
        if self._span.is_recording():
            self._delivery = delivery
            self._look()

    @harmless("ending a span")
    def end_raised(self, error: BaseException) -> None:
        """The call raised. The records that it had appended before have an outcome of their own,
        the error's ``delivery``, and the span waits for it."""
        self._refusal = failure_attributes(error)
        appended = getattr(error, "delivery", None)
        if appended is not None:
            self.follow(appended)
            return
        attributes: dict[str, AttributeValue] = {BATCH_COUNT: self._records or 0}
        if not isinstance(error, Exception):
            # It was cancelled. How many records it had appended is not known.
            attributes[MAYBE_WRITTEN] = True
        elif self._records:
            attributes[FAILED_RECORDS] = self._records
        end_failed(self._span, {**attributes, **self._refusal})

    @harmless("ending a span")
    def _look(self) -> None:
        delivery = self._delivery
        assert delivery is not None
        run = delivery.latest_run()
        if run is None:
            self._delivery = None
            self._end(delivery)
        else:
            batch_result, first, count = run
            batch_result.when_settled(first + count - 1, BulkSpan._look, self)

    def _end(self, delivery: BulkDelivery) -> None:
        failures, written = delivery.peek()
        appended = delivery.records
        count = appended if self._refusal is None else max(appended, self._records or 0)
        attributes: dict[str, AttributeValue] = {BATCH_COUNT: count}
        if not failures and self._refusal is None:
            if len(written.partitions) == 1:
                ((partition, ranges),) = written.partitions.items()
                first = ranges[0].first if len(ranges) == 1 else NO_OFFSET
                view = None if self._metadata is None else self._metadata.view
                attributes.update(place_attributes(written.topic, partition, first, view))
            self._span.set_attributes(attributes)
            self._span.end()
            return
        attributes.update(self._refusal or failure_attributes(failures[0].error))
        failed = count - appended + sum(failure.records for failure in failures)
        if failed:
            attributes[FAILED_RECORDS] = failed
        if any(failure.error.maybe_written for failure in failures):
            attributes[MAYBE_WRITTEN] = True
        end_failed(self._span, attributes)


def traced_bulk_methods(gate: SpanGate, spans: Spans) -> dict[str, Any]:
    """The methods by name."""

    def started(
        producer: Any, topic: Any, partition: Any, headers: HeadersLike = ()
    ) -> tuple[Span, Pairs]:
        unsampled_headers = gate.unsampled_headers()
        if unsampled_headers is None:
            return spans.start(producer, topic, partition, {}, own_context(headers))
        return trace.INVALID_SPAN, unsampled_headers

    @wraps(Producer.send_many)
    async def send_many(
        self: Any,
        topic: str,
        values: Iterable[Any],
        *,
        partition: int | None = None,
        headers: HeadersLike = (),
        record_headers: Iterable[HeadersLike] | None = None,
        **others: Any,
    ) -> BulkDelivery:
        headers = readable(headers)
        span, pairs = started(self, topic, partition, headers)
        if pairs:
            headers = with_pairs(headers, pairs)
            others["record_headers"] = _each_with_pairs(record_headers, pairs)
        else:
            others["record_headers"] = record_headers
        sending = _plain_send_many(
            self, topic, values, partition=partition, headers=headers, **others
        )
        return await _followed(BulkSpan(span, metadata_of(self), _length(values)), sending)

    @wraps(Producer.send_arrow)
    async def send_arrow(
        self: Any, topic: str, data: Any, *, partition: int | None = None, **others: Any
    ) -> BulkDelivery:
        span, pairs = started(self, topic, partition)
        sending = _send_columns(self, topic, data, pairs, partition=partition, **others)
        rows = getattr(data, "num_rows", None)
        records = rows if type(rows) is int else None
        return await _followed(BulkSpan(span, metadata_of(self), records), sending)

    @wraps(Producer.send_batch)
    async def send_batch(
        self: Any, batch: RecordBatchBuilder, topic: str, *, partition: int | None = None
    ) -> Delivery:
        span, _ = started(self, topic, partition)  # the records are encoded already
        batch_span = RecordSpan(span, metadata_of(self))
        batch_span.set_count(getattr(batch, "record_count", 0))
        sending = _plain_send_batch(self, batch, topic, partition=partition)
        return await _followed(batch_span, sending)

    return {"send_many": send_many, "send_arrow": send_arrow, "send_batch": send_batch}


_plain_send_many = Producer.send_many
_plain_send_arrow = Producer.send_arrow
_plain_send_batch = Producer.send_batch


async def _followed(span: BulkSpan | RecordSpan, sending: Awaitable[D]) -> D:
    """The delivery of a call, which ends the span."""
    try:
        delivery = await sending
    except BaseException as error:
        span.end_raised(error)
        raise
    span.follow(delivery)  # type: ignore[arg-type]
    return delivery


def _length(values: Any) -> int | None:
    try:
        return len(values)
    except Exception:  # noqa: BLE001 - an iterator, or what send_many refuses
        return None


async def _send_columns(
    producer: Any, topic: str, data: Any, pairs: Pairs, **others: Any
) -> BulkDelivery:
    if pairs:
        data = _columns_with_pairs(data, pairs)
    return await _plain_send_arrow(producer, topic, data, **others)


def _each_with_pairs(column: Any, pairs: Pairs) -> Any:
    """``record_headers`` with the context. None stays: such a record has the shared headers."""
    if column is None or not hasattr(column, "__iter__") or isinstance(column, (str, bytes)):
        return column  # what send_many refuses stays as it is
    return (None if headers is None else with_pairs(headers, pairs) for headers in column)


def _columns_with_pairs(data: Any, pairs: Pairs) -> Any:
    """Arrow data with the context in a column ``headers``, unless they have such a column."""
    arrow = import_module("kafkaclient.producer.bulk.arrow")  # it needs pyarrow
    pa = arrow.pa
    reader = arrow.opened(data)
    if "headers" in reader.schema.names:
        return reader
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    schema = reader.schema.append(pa.field("headers", kind))
    row = pa.scalar([{"key": name, "value": value} for name, value in pairs], kind)
    batches = (
        pa.record_batch([*batch.columns, pa.repeat(row, len(batch))], schema=schema)
        for batch in reader
    )
    return pa.RecordBatchReader.from_batches(schema, batches)
