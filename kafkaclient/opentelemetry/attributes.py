"""Names and attributes of spans, by the semantic conventions for messaging and for Kafka.

No attribute has a record's value. A key is an attribute only if the instrumentation is told so.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.server_attributes import SERVER_ADDRESS, SERVER_PORT

from kafkaclient.types import NO_OFFSET

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.view import ClusterView

MAYBE_WRITTEN = "kafkaclient.maybe_written"
"""Of a failed span: whether the record may be in the log all the same. No name of a convention."""


def span_description(client_id: str, topic: Any) -> tuple[str, dict[str, AttributeValue]]:
    """The name of a span, and the attributes of all spans of the topic: do not change them."""
    # The producer refuses most topics that are no str.
    return _span_description(client_id, topic if type(topic) is str else type(topic).__qualname__)


@lru_cache(maxsize=4096)
def _span_description(client_id: str, topic: str) -> tuple[str, dict[str, AttributeValue]]:
    return f"send {topic}", {
        names.MESSAGING_SYSTEM: names.MessagingSystemValues.KAFKA.value,
        names.MESSAGING_OPERATION_NAME: "send",
        names.MESSAGING_OPERATION_TYPE: names.MessagingOperationTypeValues.SEND.value,
        names.MESSAGING_DESTINATION_NAME: topic,
        names.MESSAGING_CLIENT_ID: client_id,
    }


def record_attributes(*, tombstone: bool, key: Any) -> dict[str, AttributeValue]:
    """What a span says about the record itself. ``key`` None: nothing about the key."""
    attributes: dict[str, AttributeValue] = {}
    if tombstone:
        attributes[names.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] = True
    text = None if key is None else key_text(key)
    if text is not None:
        attributes[names.MESSAGING_KAFKA_MESSAGE_KEY] = text
    return attributes


def place_attributes(
    topic: str, partition: int, offset: int = NO_OFFSET, view: ClusterView | None = None
) -> dict[str, AttributeValue]:
    """Where the record is: partition and offset as far as they are known, and the address of the
    partition's leader in ``view``."""
    attributes: dict[str, AttributeValue] = {}
    if partition >= 0:
        attributes[names.MESSAGING_DESTINATION_PARTITION_ID] = str(partition)
    if offset != NO_OFFSET:
        attributes[names.MESSAGING_KAFKA_OFFSET] = offset
    leader = None if view is None else view.leader(topic, partition)
    if leader is not None:
        attributes[SERVER_ADDRESS] = leader.host
        attributes[SERVER_PORT] = leader.port
    return attributes


def failure_attributes(error: BaseException) -> dict[str, AttributeValue]:
    """An error's kind, not its text: user code may have put a value into the text."""
    attributes: dict[str, AttributeValue] = {ERROR_TYPE: error_type(error)}
    maybe_written = getattr(error, "maybe_written", None)
    if maybe_written is not None:
        attributes[MAYBE_WRITTEN] = bool(maybe_written)
    return attributes


def key_text(key: Any) -> str | None:
    """A key as text; None if it has no text."""
    if isinstance(key, str):
        return key
    try:
        return bytes(key).decode() if isinstance(key, (bytes, bytearray, memoryview)) else None
    except ValueError:  # no UTF-8, or a released memoryview
        return None


def error_type(error: BaseException) -> str:
    """Kafka's name of a broker's error, else the name of the exception's class."""
    name = getattr(error, "name", None) if getattr(error, "code", None) is not None else None
    return name if isinstance(name, str) and name else type(error).__qualname__


def is_traced_elsewhere(producer: Any) -> bool:
    """Whether the record comes from a drop-in for aiokafka whose ``send`` another instrumentation
    has wrapped, which has made a span already."""
    dropin = sys.modules.get("kafkaclient.aiokafka.producer")
    if dropin is None or not isinstance(producer, dropin.DropInProducer):
        return False
    return hasattr(vars(dropin.AIOKafkaProducer)["send"], "__wrapped__")
