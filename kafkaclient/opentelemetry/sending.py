"""``send_nowait``, ``send`` and ``send_and_wait`` with spans. A record without a span costs little.

:class:`Gate` says whether a record gets a span, before anything is allocated for it.
:func:`traced_methods` makes the methods that take the place of a producer's own.

This file is the source of the compiled ``_sending`` as well; ``_sending.pxd`` has the C types.
"""

from __future__ import annotations

from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.opentelemetry.headers import with_pairs

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import ContextVar

    import cython
    from opentelemetry.context import Context

    from kafkaclient.opentelemetry.headers import Pairs
    from kafkaclient.producer.batches.delivery import Run
    from kafkaclient.types import HeadersLike, RecordMetadata
else:
    from kafkaclient.compiled_modules import cython

__all__ = ["NO_VARIABLES", "Gate", "traced_methods", "when_done", "when_run_done"]

NO_VARIABLES = Variables()
"""Outcomes are taken up in no context: they belong to no request."""

# What is called in C is read from a variable of C.
_with_pairs = with_pairs

if not cython.compiled:  # in C, see _sending.pxd
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.direct_append import DirectAppend  # noqa: TC001 - C needs it
    from kafkaclient.producer.batches.waiters import Callback

    def _current(variable: ContextVar[Context]) -> Context:
        return variable.get()

    def _track(delivery: Delivery) -> None:
        """Have the garbage collector visit a delivery: nothing to do."""


class Gate:
    """Whether the next record gets a span.

    ``variable`` has OpenTelemetry's current context. ``decide(context)`` is asked about each record
    that the gate cannot decide itself. It returns whether the record is sampled, and tells the gate
    with :meth:`skip` and :meth:`keep` which of the following records it need not be asked about.
    """

    __slots__ = ("_decide", "_known", "_known_pairs", "_skip", "_variable", "pairs")

    def __init__(self, variable: ContextVar[Context], decide: Callable[[Context], bool]) -> None:
        self._variable = variable
        self._decide = decide
        self._known: Context | None = None
        self._known_pairs: Pairs = ()
        self._skip = 0
        self.pairs: Pairs = ()
        """The headers that carry the context of the record that :meth:`is_sampled` refused."""

    def is_sampled(self) -> bool:
        """Whether the record that is being sent gets a span. Call it once for each record."""
        context = _current(self._variable)
        if not context:
            if self._skip > 0:
                self._skip -= 1
                self.pairs = ()
                return False
        elif context is self._known:
            self.pairs = self._known_pairs
            return False
        return self._decide(context)

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
        span, headers = start(self, topic, value, key, partition, headers)
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
        span, headers = start(self, topic, value, key, partition, headers)
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
