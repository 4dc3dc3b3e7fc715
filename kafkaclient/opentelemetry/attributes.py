"""Names and attributes of spans, by the semantic conventions for messaging and for Kafka.

No attribute has a record's value. A key is an attribute only if the instrumentation is told so.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kafkaclient.types import NO_OFFSET

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from kafkaclient.cluster.view import ClusterView

BATCH_COUNT = "messaging.batch.message_count"


def topic_attributes(topic: str) -> dict[str, AttributeValue]:
    """What spans and metrics of a topic have in common."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
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


def is_traced_elsewhere(producer: Any) -> bool:
    """Whether the record comes from a drop-in for aiokafka whose ``send`` another instrumentation
    has wrapped, which has made a span already."""
    dropin = sys.modules.get("kafkaclient.aiokafka.producer")
    if dropin is None or not isinstance(producer, dropin.DropInProducer):
        return False
    return hasattr(vars(dropin.AIOKafkaProducer)["send"], "__wrapped__")
