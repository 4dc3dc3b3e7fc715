"""``send_nowait``, ``send`` and ``send_and_wait`` with spans. A record without a span costs little.

:class:`SpanGate` says whether a record gets a span, before anything is allocated for it.
:func:`traced_methods` makes the methods that take the place of a producer's own.

``sending.pxd`` has the C types.
"""

from __future__ import annotations

from math import log, log1p
from random import random
from typing import TYPE_CHECKING, Any

import cython

from kafkaclient.opentelemetry.attributes import FAILURES, report
from kafkaclient.opentelemetry.headers import with_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.context import Context

    from kafkaclient.opentelemetry.headers import Pairs
    from kafkaclient.types import HeadersLike, RecordMetadata

__all__ = ["SpanGate", "traced_methods"]

_ALWAYS = 2**62  # records: more than any producer sends

# What is called in C is read from a variable of C.
_with_pairs = with_pairs

if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.direct_append import DirectAppend  # noqa: TC001 - C needs it

    _log = log


class SpanGate:
    """Whether the next record gets a span. Producers in several threads share one gate.

    ``current()`` gives OpenTelemetry's current context. ``decide(context)`` is asked about each
    record that the gate cannot decide, and answers as :meth:`unsampled_headers` does. By
    :meth:`remember_unsampled`, ``decide`` tells the gate for which later records the answer holds.
    """

    # Threads: no answer about a record is in a field that another record's answer could replace
    # before it is read. What belongs together is one tuple, which is replaced as a whole.
    __slots__ = (
        "_current",
        "_decide",
        "_known",
        "_log_refused",
        "_records_to_skip",
        "_samples_all",
    )

    def __init__(
        self, current: Callable[[], Context], decide: Callable[[Context], Pairs | None]
    ) -> None:
        self._current = current
        self._decide = decide
        self._known: tuple[Context | None, Pairs] = (None, ())
        self._records_to_skip = 0
        self._log_refused = 0.0
        self._samples_all = False

    def unsampled_headers(self) -> Pairs | None:
        """The headers with the context of the record that is being sent, if it gets no span; None
        if it gets one. Call it once for each record."""
        try:
            context = self._current()
        except FAILURES as error:
            report("reading the current context", error)
            return ()
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


def traced_methods(gate: SpanGate, start: Callable[..., tuple[Any, HeadersLike]]) -> dict[str, Any]:
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
        context_headers = _unsampled_headers(gate)
        if context_headers is not None:
            if context_headers:
                headers = _with_pairs(headers, context_headers)
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


def _unsampled_headers(gate: SpanGate) -> Pairs | None:
    return gate.unsampled_headers()


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
