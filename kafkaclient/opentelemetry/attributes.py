"""Names and attributes of spans, also those of errors; and what happens to errors of tracing.

Names follow the semantic conventions for messaging and for Kafka. No attribute has a record's
value. A key is an attribute only if the instrumentation is told so.

What a user's sampler, propagator or span processor raises is logged, never raised: OpenTelemetry's
specification forbids the SDK to raise at run time, and the SDK does not catch what other code
raises inside of it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import lru_cache, wraps
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from opentelemetry.trace import Status, StatusCode

from kafkaclient.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.view import ClusterView


BATCH_COUNT = "messaging.batch.message_count"


def topic_attributes(
    topic: str, name: str = "send", kind: str = "send"
) -> dict[str, AttributeValue]:
    """What spans and metrics of an operation on a topic have in common."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def span_description(client_id: str, topic: Any) -> tuple[str, dict[str, AttributeValue]]:
    """The name of a span, and the attributes of all spans of the topic: do not change them."""
    # The producer refuses most topics that are no str.
    return _span_description(client_id, topic if type(topic) is str else type(topic).__qualname__)


@lru_cache(maxsize=4096)
def _span_description(client_id: str, topic: str) -> tuple[str, dict[str, AttributeValue]]:
    return f"send {topic}", {**topic_attributes(topic), "messaging.client.id": client_id}


def record_attributes(*, tombstone: bool, key: Any) -> dict[str, AttributeValue]:
    """What a span says about the record itself. ``key`` None: nothing about the key."""
    attributes: dict[str, AttributeValue] = {}
    if tombstone:
        attributes["messaging.kafka.message.tombstone"] = True
    text = None if key is None else _key_text(key)
    if text is not None:
        attributes["messaging.kafka.message.key"] = text
    return attributes


def place_attributes(
    topic: str, partition: int, offset: int = NO_OFFSET, view: ClusterView | None = None
) -> dict[str, AttributeValue]:
    """Where the record is: partition and offset as far as they are known, and the address of the
    partition's leader in ``view``."""
    attributes: dict[str, AttributeValue] = {}
    if partition >= 0:
        attributes["messaging.destination.partition.id"] = str(partition)
    if offset != NO_OFFSET:
        attributes["messaging.kafka.offset"] = offset
    return attributes | broker_attributes(None if view is None else view.leader(topic, partition))


def broker_attributes(broker: Any) -> dict[str, AttributeValue]:
    """The address of a broker; nothing if it is None."""
    return {} if broker is None else {"server.address": broker.host, "server.port": broker.port}


def _key_text(key: Any) -> str | None:
    """A key as text; None if it has no text."""
    if isinstance(key, str):
        return key
    try:
        return bytes(key).decode() if isinstance(key, (bytes, bytearray, memoryview)) else None
    except ValueError:  # no UTF-8, or a released memoryview
        return None


def is_consumed_elsewhere(consumer: Any) -> bool:
    """Whether another instrumentation has wrapped the methods of the consumer's drop-in."""
    dropin = sys.modules.get("kafkaclient.aiokafka.consumer")
    if dropin is None or not isinstance(consumer, dropin.DropInConsumer):
        return False
    return hasattr(vars(dropin.AIOKafkaConsumer)["getone"], "__wrapped__")


def is_traced_elsewhere(producer: Any) -> bool:
    """Whether the record comes from a drop-in for aiokafka whose ``send`` another instrumentation
    has wrapped, which has made a span already."""
    dropin = sys.modules.get("kafkaclient.aiokafka.producer")
    if dropin is None or not isinstance(producer, dropin.DropInProducer):
        return False
    return hasattr(vars(dropin.AIOKafkaProducer)["send"], "__wrapped__")


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
            "tracing failed while %s: %s raised %s. Records are sent and consumed all the same. "
            "Further errors of this kind are not logged",
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
