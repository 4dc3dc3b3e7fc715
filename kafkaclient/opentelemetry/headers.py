"""Trace context in the headers of records, by the configured propagator."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Setter

from kafkaclient.opentelemetry.attributes import FAILURES, report

if TYPE_CHECKING:
    from kafkaclient.types import HeadersLike

Pairs: TypeAlias = "tuple[tuple[str, bytes], ...]"


class _Append(Setter[list[tuple[str, bytes]]]):
    def set(self, carrier: list[tuple[str, bytes]], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_APPEND = _Append()
_BESIDE_A_CONTEXT = ("baggage", "tracestate")
"""Headers of a propagator that say nothing of a trace without another header."""


def pairs_of(context: Context) -> Pairs:
    """The headers that carry a context: ``traceparent``, ``baggage``, as configured."""
    carrier: list[tuple[str, bytes]] = []
    propagate.get_global_textmap().inject(carrier, context, _APPEND)
    return tuple(carrier)


def unsampled_pairs_of(context: Context) -> Pairs:
    """The headers of a record without a span: they carry the context of its parent, which is not
    sampled any further, and baggage."""
    parent = trace.get_current_span(context).get_span_context()
    if parent.trace_flags.sampled:
        flags = trace.TraceFlags(parent.trace_flags & ~trace.TraceFlags.SAMPLED)
        ended = trace.SpanContext(
            parent.trace_id, parent.span_id, parent.is_remote, flags, parent.trace_state
        )
        context = trace.set_span_in_context(trace.NonRecordingSpan(ended), context)
    return pairs_of(context)


def readable(headers: HeadersLike) -> Any:
    """The headers, as a list if they could be read only once. If reading raises an error, the
    producer's reading raises it."""
    if not headers or _pairs_or_none(headers) is not None or not hasattr(headers, "__iter__"):
        return headers
    try:
        return list(headers)
    except Exception as error:  # noqa: BLE001 - it is raised where the producer expects it
        return map(_raise, (error,))


def own_context(headers: HeadersLike) -> trace.SpanContext | None:
    """The context that the caller has put into the headers; None if there is none. An iterator is
    not read: see :func:`readable`."""
    pairs = _pairs_or_none(headers)
    if not pairs:
        return None
    try:
        found = trace.get_current_span(context_in(pairs, Context())).get_span_context()
    except FAILURES as error:
        report("reading the context in headers", error)
        return None
    return found if found.is_valid else None


def context_in(pairs: list[Any] | tuple[Any, ...], base: Context) -> Context:
    """A context with what the headers carry, on top of ``base``."""
    fields = propagate.get_global_textmap().fields
    try:
        texts = {name: [(value or b"").decode()] for name, value in pairs if name in fields}
    except (AttributeError, TypeError, ValueError):
        return base  # the producer refuses these headers, or the context is no text
    return propagate.extract(texts, base) if texts else base


def with_pairs(headers: HeadersLike, pairs: Pairs) -> Any:
    """Headers with the context in ``pairs``, as a new object. A context that the caller has put
    into the headers stays, and gets no second one; the caller's ``baggage`` stays as well. Headers
    that the producer refuses stay refused.
    """
    if not headers:
        return pairs
    headers = readable(headers)
    listed = _pairs_or_none(headers)
    if listed is None:
        return chain(headers, pairs) if hasattr(headers, "__iter__") else headers
    names = [name for name, _ in pairs]
    # The producer takes lists as pairs, too.
    own = [pair[0] for pair in listed if isinstance(pair, (tuple, list)) and pair]
    found = [name for name in names if name in own]
    if not found:
        return [*listed, *pairs]
    if not all(name in _BESIDE_A_CONTEXT for name in found):
        return headers
    return [*listed, *(pair for pair in pairs if pair[0] not in found)]


def _pairs_or_none(headers: Any) -> list[Any] | tuple[Any, ...] | None:
    """The headers in pairs; None: they can be read once only, or not at all."""
    if isinstance(headers, Mapping):
        return list(headers.items())
    return headers if isinstance(headers, (list, tuple)) else None


def _raise(error: Exception) -> NoReturn:
    raise error
