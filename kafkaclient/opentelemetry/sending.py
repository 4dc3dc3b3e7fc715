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
    "NO_VARIABLES",
    "TRACEPARENT",
    "Gate",
    "Started",
    "Starter",
    "traced_methods",
    "when_done",
    "when_run_done",
]

TRACEPARENT = "traceparent"
_ALWAYS = 2**62  # records: more than any producer sends
_LOWER = 2**64 - 1
_LARGEST_PARTITION = 2**31 - 1

NO_VARIABLES = Variables()
"""Outcomes are taken up in no context: they belong to no request."""

# What is called in C is read from a variable of C.
_with_pairs = with_pairs

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
    """Whether the next record gets a span.

    ``variable`` has OpenTelemetry's current context. ``decide(context)`` is asked about each record
    that the gate cannot decide itself. It returns whether the record is sampled, and tells the gate
    with :meth:`skip` and :meth:`keep` which of the following records it need not be asked about.
    """

    __slots__ = (
        "_decide",
        "_known",
        "_known_pairs",
        "_log_refused",
        "_samples_all",
        "_skip",
        "_variable",
        "pairs",
        "starter",
    )

    def __init__(self, variable: ContextVar[Context], decide: Callable[[Context], bool]) -> None:
        self._variable = variable
        self._decide = decide
        self._known: Context | None = None
        self._known_pairs: Pairs = ()
        self._skip = 0
        self._log_refused = 0.0
        self._samples_all = False
        self.pairs: Pairs = ()
        """The headers that carry the context of the record that :meth:`is_sampled` refused."""
        self.starter: Starter | None = None
        """Starts the spans of most records; None: each span needs more than that."""

    def is_sampled(self) -> bool:
        """Whether the record that is being sent gets a span. Call it once for each record."""
        context = _current(self._variable)
        if not context:
            if self._skip > 0:
                self._skip -= 1
                self.pairs = ()
                return False
            if self._samples_all:
                return True
            if self._log_refused < 0:
                self.draw()
                return True
        elif context is self._known:
            self.pairs = self._known_pairs
            return False
        return self._decide(context)

    def sample(self, ratio: float) -> None:
        """Sample this share of the records that are sent in an empty context."""
        self._samples_all = ratio >= 1
        if 0 < ratio < 1:
            self._log_refused = log1p(-ratio)
            self.draw()
        self._skip = _ALWAYS if ratio <= 0 else self._skip

    def draw(self) -> None:
        """Draw how many records come before the next one that is sampled."""
        if self._log_refused < 0:
            self._skip = int(_log(1 - random()) / self._log_refused)

    def stop(self) -> None:
        """Sample no record any more."""
        self.keep(None, ())
        self._skip = _ALWAYS

    @property
    def skipped(self) -> int:
        """How many records in an empty context still get no span."""
        return self._skip

    def skip(self, records: int) -> None:
        """The next ``records`` records that are sent in an empty context get no span."""
        self._skip = records

    def keep(self, context: Context | None, pairs: Pairs) -> None:
        """Records that are sent in ``context`` get no span, but the headers ``pairs``. Replaces
        the context of the last call."""
        self.pairs = pairs
        self._known, self._known_pairs = context, pairs


class Started:
    """What the span of a record takes when the record is sent.

    The span itself is made at the end: by ``starter.finish(started, partition, offset, error)``.
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
        "start_ns",
        "starter",
        "tombstone",
        "top",
    )

    core: Any
    described: tuple[str, dict[str, AttributeValue]]
    flags: int
    low: int
    span_id: int
    start_ns: int
    starter: Starter
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
        when_done(delivery, _end, self, NO_VARIABLES)

    def end_raised(self, error: BaseException) -> None:
        """The call raised: the record was not sent."""
        self.starter.finish(self, self.partition, -1, error)

    def end(self) -> None:
        """The record has its outcome."""
        delivery = self._delivery
        self._delivery = None
        assert delivery is not None
        batch_result, index = delivery._batch_result.resolve_index(delivery._index)
        offset = batch_result.base_offset
        if offset >= 0:
            offset += index
        error = batch_result.error_of(index)
        self.starter.finish(self, batch_result.partition, offset, error)


def _end(started: Started) -> None:
    started.end()


class Starter:
    """Starts the spans of records whose headers have no context of the caller's own.

    ``spans`` has the rest: ``is_fit()`` says whether a span can be made at its end at this moment,
    ``take_up(context)`` sets the fields that depend on the context, ``describe(producer, topic)``
    gives a span's name and attributes, and ``finish`` makes the span. A producer of another class
    than ``kind`` is left out if ``is_traced_elsewhere(producer)``. ``bound``: the trace ids of
    records without parent are below it in their lower 64 bits.
    """

    __slots__ = (
        "_bound",
        "_is_fit",
        "_is_traced_elsewhere",
        "_kind",
        "_spans",
        "_variable",
        "context",
        "finish",
        "flags",
        "pairs",
        "parent",
        "record_keys",
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
        self._is_fit = spans.is_fit
        self.finish = spans.finish
        self.record_keys = record_keys
        self.context: Context | None = None
        self.parent: SpanContext | None = None
        self.flags = 1
        self.pairs: Pairs = ()

    def start(
        self, producer: Any, topic: Any, value: Any, key: Any, partition: Any
    ) -> Started | None:
        """None: the span needs more than this."""
        if type(producer) is not self._kind and self._is_traced_elsewhere(producer):
            return None
        if not self._is_fit():
            return None
        context = _current(self._variable)
        if context is not self.context:
            self._spans.take_up(context)
        started = Started()
        started.starter = self
        parent = self.parent
        if parent is None:
            started.top = getrandbits(64) or 1
            started.low = getrandbits(64) * self._bound >> 64
        else:
            trace_id = parent.trace_id
            started.parent = parent
            started.top, started.low = trace_id >> 64, trace_id & _LOWER
        started.span_id = getrandbits(64) or 1
        started.flags = self.flags
        started.described = self._spans.describe(producer, topic)
        started.core = producer._core
        if value is None:
            started.tombstone = True
        if key is not None and self.record_keys:
            started.key = key
        if type(partition) is int and 0 <= partition <= _LARGEST_PARTITION:
            started.partition = partition
        started.start_ns = time_ns()
        return started

    def pairs_of(self, started: Started) -> Pairs:
        """The headers that carry the context of a span."""
        parent = _traceparent(started.top, started.low, started.span_id, started.flags)
        return ((TRACEPARENT, parent), *self.pairs)


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
        if not _is_sampled(gate):
            headers = _unsampled(gate, headers)
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
        if not _is_sampled(gate):
            headers = _unsampled(gate, headers)
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


def _is_sampled(gate: Gate) -> bool:
    return gate.is_sampled()


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
    starter = gate.starter
    if starter is not None and not headers:
        started = starter.start(producer, topic, value, key, partition)
        if started is not None:
            return started, starter.pairs_of(started)
    return start(producer, topic, value, key, partition, headers)


def _unsampled(gate: Gate, headers: HeadersLike) -> HeadersLike:
    """The headers of a record without a span."""
    return _with_pairs(headers, gate.pairs) if gate.pairs else headers


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


def when_done(
    delivery: Delivery, callback: Callable[[Any], object], target: object, context: Variables
) -> None:
    """Call ``callback(target)`` in ``context`` once the record has its outcome.

    ``Delivery.add_done_callback`` counts as looking at the outcome: a failure would no longer be
    reported as unseen. This function does not count.
    """
    _track(delivery)
    when_run_done((delivery._batch_result, delivery._index, 1), callback, target, context)


def when_run_done(
    run: Run, callback: Callable[[Any], object], target: object, context: Variables
) -> None:
    """Call ``callback(target)`` in ``context`` once the last record of a run has its outcome."""
    whole, first, count = run
    batch_result, index = whole.resolve_index(first + count - 1)
    loop = batch_result.home_loop()
    if batch_result.done:
        loop.call_soon(callback, target, context=context)
    else:
        batch_result.when_done(index, Callback(loop, callback, target, 0, context))


use_compiled(globals())
