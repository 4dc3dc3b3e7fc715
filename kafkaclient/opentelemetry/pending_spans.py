"""What the span of a record takes when the record is sent. The span is made at its end.

This file is the source of the compiled ``_pending_spans`` as well; ``_pending_spans.pxd`` has the C
types.
"""

from __future__ import annotations

from random import getrandbits
from time import time_ns
from typing import TYPE_CHECKING, Any

import cython

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import ContextVar

    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.opentelemetry.headers import Pairs

__all__ = ["TRACEPARENT", "PendingSpan", "PendingSpans"]

TRACEPARENT = "traceparent"
_LOWER = 2**64 - 1
_LARGEST_PARTITION = 2**31 - 1

if not cython.compiled:  # in C, see _pending_spans.pxd
    from kafkaclient.producer.batches.delivery import Delivery  # noqa: TC001 - C needs it

    def _current(variable: ContextVar[Context]) -> Context:
        return variable.get()

    def _traceparent(top: int, low: int, span_id: int, flags: int) -> bytes:
        """The header of W3C's Trace Context."""
        return b"00-%016x%016x-%016x-%02x" % (top, low, span_id, flags)


class PendingSpan:
    """What the span of a record takes when the record is sent.

    The span is made at its end: by ``spans.finish(span, partition, offset, error)``.
    """

    __slots__ = (
        "_delivery",
        "core",
        "description",
        "flags",
        "key",
        "low",
        "parent",
        "partition",
        "span_id",
        "spans",
        "start_ns",
        "tombstone",
        "top",
    )

    core: Any
    description: tuple[str, dict[str, AttributeValue]]
    flags: int
    low: int
    span_id: int
    spans: PendingSpans
    start_ns: int
    top: int

    def __init__(self) -> None:
        self._delivery: Delivery | None = None
        self.key: Any = None
        self.parent: SpanContext | None = None
        self.partition = -1
        self.tombstone = False

    @property
    def trace_id(self) -> int:
        upper: Any = self.top
        return int(upper) << 64 | self.low

    def follow(self, delivery: Delivery) -> None:
        """End the span with the delivery's outcome, without looking at it in the user's place."""
        self._delivery = delivery
        delivery.when_settled(_end, self)

    def end_raised(self, error: BaseException) -> None:
        """The call raised: the record was not sent."""
        self.spans.finish(self, self.partition, -1, error)

    def end(self) -> None:
        """The record has its outcome."""
        delivery = self._delivery
        self._delivery = None
        assert delivery is not None
        _, partition, offset, error = delivery.peek()
        self.spans.finish(self, partition, offset, error)


def _end(span: PendingSpan) -> None:
    span.end()


class PendingSpans:
    """Starts the spans of records whose headers have no context of the caller's own.

    ``spans`` has the rest: ``allowed_by()`` gives what allows spans that are made at their end now,
    ``facts_of(context, allowed_by)`` what depends on the context, ``describe(producer, topic)`` a
    span's name and attributes, ``key_text(key)`` a key as text, and ``finish`` makes the span. A
    producer of another class than ``kind`` is left out if ``is_traced_elsewhere(producer)``.
    ``bound``: the trace ids of records without parent are below it in their lower 64 bits.
    """

    __slots__ = (
        "_allowed_by",
        "_bound",
        "_facts",
        "_is_traced_elsewhere",
        "_kind",
        "_record_keys",
        "_spans",
        "_variable",
        "finish",
    )

    def __init__(
        self,
        variable: ContextVar[Context],
        spans: Any,
        kind: type,
        is_traced_elsewhere: Callable[[Any], bool],
        bound: int,
        record_keys: bool,
    ) -> None:
        self._variable = variable
        self._spans = spans
        self._kind = kind
        self._is_traced_elsewhere = is_traced_elsewhere
        self._bound = bound
        self._allowed_by = spans.allowed_by
        self.finish = spans.finish
        self._record_keys = record_keys
        # The last context's, replaced as a whole: another thread may do so at any time.
        self._facts: tuple[Any, ...] = (None, None, None, 0, ())

    def start(
        self, producer: Any, topic: Any, value: Any, key: Any, partition: Any
    ) -> tuple[PendingSpan, Pairs] | None:
        """The span, and the headers that carry its context. None: the tracer has to start it."""
        if type(producer) is not self._kind and self._is_traced_elsewhere(producer):
            return None
        allowed_by = self._allowed_by()
        if allowed_by is None:
            return None
        context = _current(self._variable)
        facts = self._facts
        if facts[0] is not context or facts[1] is not allowed_by:
            facts = self._spans.facts_of(context, allowed_by)
            if facts is None:
                return None
            self._facts = facts
        return self.start_with(facts, producer, topic, value, key, partition)

    def start_with(
        self,
        facts: tuple[Any, ...],
        producer: Any,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
    ) -> tuple[PendingSpan, Pairs]:
        """:meth:`start` with the facts ``(context, allowed_by, parent, flags, headers)``."""
        span = PendingSpan()
        span.spans = self
        parent = facts[2]
        if parent is None:
            span.top = getrandbits(64) or 1
            span.low = getrandbits(64) * self._bound >> 64
        else:
            trace_id = parent.trace_id
            span.parent = parent
            span.top, span.low = trace_id >> 64, trace_id & _LOWER
        span.span_id = getrandbits(64) or 1
        span.flags = facts[3]
        span.description = self._spans.describe(producer, topic)
        span.core = producer._core
        if value is None:
            span.tombstone = True
        if key is not None and self._record_keys:
            # The caller can use another kind of buffer again before the span ends.
            is_constant = type(key) is bytes or type(key) is str
            span.key = key if is_constant else self._spans.key_text(key)
        if type(partition) is int and 0 <= partition <= _LARGEST_PARTITION:
            span.partition = partition
        span.start_ns = time_ns()
        traceparent = _traceparent(span.top, span.low, span.span_id, span.flags)
        return span, ((TRACEPARENT, traceparent), *facts[4])
