"""Names and attributes of spans, by the semantic conventions for messaging and for Kafka.

No attribute has a record's value. A key is an attribute only if the instrumentation is told so.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.semconv.attributes.server_attributes import SERVER_ADDRESS, SERVER_PORT

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.view import ClusterView

MAYBE_WRITTEN = "kafkaclient.maybe_written"
"""Of a failed span: whether the record may be in the log all the same. No name of a convention."""


def described(client_id: str, topic: Any) -> tuple[str, dict[str, AttributeValue]]:
    """The name of a span, and what all spans of the topic have: it must not be changed."""
    # The producer refuses most topics that are no str.
    return _described(client_id, topic if type(topic) is str else type(topic).__qualname__)


@lru_cache(maxsize=4096)
def _described(client_id: str, topic: str) -> tuple[str, dict[str, AttributeValue]]:
    return f"send {topic}", {
        names.MESSAGING_SYSTEM: names.MessagingSystemValues.KAFKA.value,
        names.MESSAGING_OPERATION_NAME: "send",
        names.MESSAGING_OPERATION_TYPE: names.MessagingOperationTypeValues.SEND.value,
        names.MESSAGING_DESTINATION_NAME: topic,
        names.MESSAGING_CLIENT_ID: client_id,
    }


def key_text(key: Any) -> str | None:
    """A key as text; None if it has no text."""
    if isinstance(key, str):
        return key
    try:
        return bytes(key).decode() if isinstance(key, (bytes, bytearray, memoryview)) else None
    except ValueError:  # no UTF-8, or a released memoryview
        return None


def server(view: ClusterView, topic: str, partition: int) -> dict[str, AttributeValue]:
    """The address of the partition's leader, which has just acknowledged a record."""
    leader = view.leader(topic, partition)
    return {} if leader is None else {SERVER_ADDRESS: leader.host, SERVER_PORT: leader.port}


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
