"""``send_nowait``, ``send`` and ``send_and_wait`` with spans. A record without a span costs little.

:class:`Gate` says whether a record gets a span, before anything is allocated for it.
:func:`traced_methods` makes the methods that take the place of a producer's own.

This file is the source of the compiled ``_sending`` as well; ``_sending.pxd`` has the C types.
"""

from __future__ import annotations

from contextvars import Context as Variables
from math import log, log1p
from random import getrandbits, random
from time import time_ns
from typing import TYPE_CHECKING, Any

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.opentelemetry.attributes import key_text
from kafkaclient.opentelemetry.headers import with_pairs

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import ContextVar

    import cython
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.opentelemetry.headers import Pairs
    from kafkaclient.producer.batches.delivery import Run
    from kafkaclient.types import HeadersLike, RecordMetadata
else:
    from kafkaclient.compiled_modules import cython

__all__ = [
    "TRACEPARENT",
    "Gate",
    "PendingSpan",
    "PendingSpans",
    "traced_methods",
    "when_done",
    "when_run_done",
]

TRACEPARENT = "traceparent"
_ALWAYS = 2**62  # records: more than any producer sends
_LOWER = 2**64 - 1
_LARGEST_PARTITION = 2**31 - 1

# What is called in C is read from a variable of C.
_key_text, _with_pairs = key_text, with_pairs

if not cython.compiled:  # in C, see _sending.pxd
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.direct_append import DirectAppend  # noqa: TC001 - C needs it
    from kafkaclient.producer.batches.waiters import Callback

    _log = log

    def _current(variable: ContextVar[Context]) -> Context:
        return variable.get()

    def _traceparent(top: int, low: int, span_id: int, flags: int) -> bytes:
        """The header of W3C's Trace Context."""
        return b"00-%016x%016x-%016x-%02x" % (top, low, span_id, flags)

    def _track(delivery: Delivery) -> None:
        """Have the garbage collector visit a delivery: nothing to do."""


class Gate:
    """Whether the next record gets a span. Producers in several threads share one gate.

    ``variable`` has OpenTelemetry's current context. ``decide(context)`` is asked about each record
    that the gate cannot decide itself. Its answer is that of :meth:`unsampled_headers`. With
    :meth:`remember_unsampled` it tells the gate which of the following records have this answer.
    """

    # Threads: no answer about a record is in a field that another record's answer could replace
    # before it is read. What belongs together is one tuple, which is replaced as a whole.
    __slots__ = (
        "_decide",
        "_known",
        "_log_refused",
        "_records_to_skip",
        "_samples_all",
        "_variable",
        "pending_spans",
    )

    def __init__(
        self, variable: ContextVar[Context], decide: Callable[[Context], Pairs | None]
    ) -> None:
        self._variable = variable
        self._decide = decide
        self._known: tuple[Context | None, Pairs] = (None, ())
        self._records_to_skip = 0
        self._log_refused = 0.0
        self._samples_all = False
        self.pending_spans: PendingSpans | None = None
        """Starts the spans of most records; None: the tracer starts each span."""

    def unsampled_headers(self) -> Pairs | None:
        """The headers with the context of the record that is being sent, if it gets no span; None
        if it gets one. Call it once for each record."""
        context = _current(self._variable)
        if not context:
            if self.skip_record():
                return ()
            if self._samples_all:
                return None
            if self._log_refused < 0:
                self.draw()
                return None
        else:
            known = self._known
            if context is known[0]:
                return known[1]
        return self._decide(context)

    def sample(self, ratio: float) -> None:
        """Sample this share of the records that are sent in an empty context."""
        self._samples_all = ratio >= 1
        if 0 < ratio < 1:
            self._log_refused = log1p(-ratio)
            self.draw()
        self._records_to_skip = _ALWAYS if ratio <= 0 else self._records_to_skip

    def draw(self) -> None:
        """Draw how many records come before the next one that is sampled."""
        if self._log_refused < 0:
            self._records_to_skip = int(_log(1 - random()) / self._log_refused)

    def skip_record(self) -> bool:
        """Count one of the records up to the next one that is sampled. False: this is that one."""
        if self._records_to_skip > 0:
            self._records_to_skip -= 1
            return True
        return False

    def stop(self) -> None:
        """Sample no record any more."""
        self._known = (None, ())
        self._records_to_skip = _ALWAYS

    def remember_unsampled(self, context: Context, headers: Pairs) -> None:
        """Records that are sent in ``context`` get no span, but these headers. Replaces the context
        of the last call."""
        self._known = (context, headers)


class PendingSpan:
    """What the span of a record takes when the record is sent.

    The span is made at its end: by ``spans.finish(span, partition, offset, error)``.
    """

    __slots__ = (
        "_delivery",
        "core",
        "described",
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
    described: tuple[str, dict[str, AttributeValue]]
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
        when_done(delivery, _end, self)

    def end_raised(self, error: BaseException) -> None:
        """The call raised: the record was not sent."""
        self.spans.finish(self, self.partition, -1, error)

    def end(self) -> None:
        """The record has its outcome."""
        delivery = self._delivery
        self._delivery = None
        assert delivery is not None
        batch_result, index = delivery._peek()
        offset = batch_result.base_offset
        if offset >= 0:
            offset += index
        error = batch_result.error_of(index)
        self.spans.finish(self, batch_result.partition, offset, error)


def _end(span: PendingSpan) -> None:
    span.end()


class PendingSpans:
    """Starts the spans of records whose headers have no context of the caller's own.

    ``spans`` has the rest: ``allowed_by()`` gives what allows spans that are made at their end now,
    ``facts_of(context, allowed_by)`` what depends on the context, ``describe(producer, topic)`` a
    span's name and attributes, and ``finish`` makes the span. A producer of another class than
    ``kind`` is left out if ``is_traced_elsewhere(producer)``. ``bound``: the trace ids of records
    without parent are below it in their lower 64 bits.
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
        span.described = self._spans.describe(producer, topic)
        span.core = producer._core
        if value is None:
            span.tombstone = True
        if key is not None and self._record_keys:
            # The caller can use another kind of buffer again before the span ends.
            span.key = key if type(key) is bytes or type(key) is str else _key_text(key)
        if type(partition) is int and 0 <= partition <= _LARGEST_PARTITION:
            span.partition = partition
        span.start_ns = time_ns()
        traceparent = _traceparent(span.top, span.low, span.span_id, span.flags)
        return span, ((TRACEPARENT, traceparent), *facts[4])


def traced_methods(gate: Gate, start: Callable[..., tuple[Any, HeadersLike]]) -> dict[str, Any]:
    """The methods by name. ``start(producer, topic, value, key, partition, headers)`` starts the
    span of a record, and returns it with the headers that carry its context."""

    def send_nowait(
        self: Any,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        context_headers = _unsampled_headers(gate)
        if context_headers is not None:
            if context_headers:
                headers = _with_pairs(headers, context_headers)
            done = _try_append(self, topic, value, key, partition, timestamp_ms, headers)
            return done if isinstance(done, Delivery) else self._send_slowly(done)
        span, headers = _start(gate, start, self, topic, value, key, partition, headers)
        try:
            done = _try_append(self, topic, value, key, partition, timestamp_ms, headers)
            delivery = done if isinstance(done, Delivery) else self._send_slowly(done)
        except BaseException as error:
            span.end_raised(error)
            raise
        span.follow(delivery)
        return delivery

    async def send(
        self: Any,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        context_headers = _unsampled_headers(gate)
        if context_headers is not None:
            if context_headers:
                headers = _with_pairs(headers, context_headers)
            done = _try_append(self, topic, value, key, partition, timestamp_ms, headers)
            return done if isinstance(done, Delivery) else await self._append(done)
        span, headers = _start(gate, start, self, topic, value, key, partition, headers)
        try:
            done = _try_append(self, topic, value, key, partition, timestamp_ms, headers)
            delivery = done if isinstance(done, Delivery) else await self._append(done)
        except BaseException as error:  # also if the caller is cancelled while it waits
            span.end_raised(error)
            raise
        span.follow(delivery)
        return delivery

    async def send_and_wait(
        self: Any,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        delivery = await send(
            self,
            topic,
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
        )
        return await delivery

    return {"send_nowait": send_nowait, "send": send, "send_and_wait": send_and_wait}


def _unsampled_headers(gate: Gate) -> Pairs | None:
    return gate.unsampled_headers()


def _start(
    gate: Gate,
    start: Callable[..., tuple[Any, HeadersLike]],
    producer: Any,
    topic: Any,
    value: Any,
    key: Any,
    partition: Any,
    headers: HeadersLike,
) -> tuple[Any, HeadersLike]:
    pending_spans = gate.pending_spans
    if pending_spans is not None and not headers:
        started = pending_spans.start(producer, topic, value, key, partition)
        if started is not None:
            return started
    return start(producer, topic, value, key, partition, headers)


def _try_append(
    producer: DirectAppend,
    topic: Any,
    value: Any,
    key: Any,
    partition: int | None,
    timestamp_ms: int | None,
    headers: HeadersLike,
) -> Any:
    return producer._try_append(topic, value, key, partition, timestamp_ms, headers)


def when_done(delivery: Delivery, callback: Callable[[Any], object], target: object) -> None:
    """Call ``callback(target)`` in an empty context once the record has its outcome.

    ``Delivery.add_done_callback`` counts as looking at the outcome: a failure would no longer be
    reported as unseen. This function does not count.
    """
    _track(delivery)
    when_run_done((delivery._batch_result, delivery._index, 1), callback, target)


def when_run_done(run: Run, callback: Callable[[Any], object], target: object) -> None:
    """Call ``callback(target)`` in an empty context once the last record of a run has its outcome.

    The outcome belongs to no request. Each call has a context of its own: two threads cannot be in
    one context at the same time.
    """
    whole, first, count = run
    batch_result, index = whole.resolve_index(first + count - 1)
    loop = batch_result.home_loop()
    if batch_result.done:
        loop.call_soon(callback, target, context=Variables())
    else:
        batch_result.when_done(index, Callback(loop, callback, target, 0, Variables()))


use_compiled(globals())
