"""Errors: those of records as attributes of spans, and those of tracing itself.

What a user's sampler, propagator or span processor raises is logged, never raised: OpenTelemetry's
specification forbids the SDK to raise at run time, and the SDK does not catch what other code
raises inside of it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import wraps
from traceback import walk_tb
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from opentelemetry.trace import Status, StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

_log = logging.getLogger(__name__)

S = TypeVar("S")
P = ParamSpec("P")

ERROR_TYPE = "error.type"
MAYBE_WRITTEN = "kafkaclient.maybe_written"
"""Of a failed span: whether the record may be in the log all the same. No name of a convention."""

# None of the guarded calls awaits, so a CancelledError does not come from the event loop.
FAILURES = (Exception, asyncio.CancelledError)
_MOST_KINDS = 1000
_OWN = ("kafkaclient", "opentelemetry")

_logged: set[tuple[str, str, type[BaseException]]] = set()


def failure_attributes(error: BaseException) -> dict[str, AttributeValue]:
    """An error's kind, not its text: user code may have put a value into the text."""
    attributes: dict[str, AttributeValue] = {ERROR_TYPE: error_type(error)}
    maybe_written = getattr(error, "maybe_written", None)
    if maybe_written is not None:
        attributes[MAYBE_WRITTEN] = bool(maybe_written)
    return attributes


def error_type(error: BaseException) -> str:
    """Kafka's name of a broker's error, else the name of the exception's class."""
    name = getattr(error, "name", None) if getattr(error, "code", None) is not None else None
    return name if isinstance(name, str) and name else type(error).__qualname__


def end_failed(span: Span, attributes: dict[str, AttributeValue]) -> None:
    """End a span with these attributes, as failed."""
    span.set_attributes(attributes)
    span.set_status(Status(StatusCode.ERROR))
    span.end()


def report(doing: str, error: BaseException) -> None:
    """Log an error of tracing, once for each kind: the same class, raised by the same function
    during the same step (``doing``)."""
    function = _raised_by(error)
    kind = (doing, function, type(error))
    if kind not in _logged and len(_logged) < _MOST_KINDS:
        _logged.add(kind)
        _log.warning(
            "tracing failed while %s: %s raised %s. Records are sent all the same. Further errors "
            "of this kind are not logged",
            doing,
            function,
            type(error).__qualname__,
            exc_info=error,
        )


def harmless(
    doing: str,
) -> Callable[[Callable[Concatenate[S, P], None]], Callable[Concatenate[S, P], None]]:
    """A decorator: errors of the method are reported, and not raised."""

    def decorate(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
        @wraps(method)
        def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            try:
                method(self, *args, **kwargs)
            except FAILURES as error:
                report(doing, error)

        return guarded

    return decorate


def _raised_by(error: BaseException) -> str:
    """``module:function`` of the first code that is neither OpenTelemetry's nor ours, else of the
    place of the error."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    named = [(str(f.f_globals.get("__name__")), f.f_code.co_qualname) for f in frames]
    others = [name for name in named if name[0].partition(".")[0] not in _OWN]
    return ":".join(others[0] if others else named[-1])
