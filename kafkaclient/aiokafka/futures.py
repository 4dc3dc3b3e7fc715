"""The one place that knows how a delivery becomes the asyncio future that ``send`` returns."""

from __future__ import annotations

import asyncio
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

from kafkaclient.aiokafka.errors import aiokafka_error
from kafkaclient.aiokafka.structs import RecordMetadata, TopicPartition
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from kafkaclient import Delivery
    from kafkaclient.types import RecordMetadata as OurMetadata

    FutureFactory: TypeAlias = Callable[[Delivery], asyncio.Future[RecordMetadata]]

__all__ = ["future_factory"]

_topic_partition = lru_cache(maxsize=4096)(TopicPartition)


def future_factory(acks: int) -> FutureFactory:
    """A function from a delivery to its asyncio future. With ``acks`` 0 its result is None."""
    return partial(_bridged, unknown if acks == 0 else _metadata)


def _metadata(ours: OurMetadata) -> RecordMetadata:
    topic, partition, offset, timestamp = ours
    place = _topic_partition(topic, partition)
    return RecordMetadata(topic, partition, place, offset, timestamp, 0, None)


def unknown(_ours: OurMetadata) -> RecordMetadata:
    return cast("RecordMetadata", None)


def _bridged(
    translate: Callable[[OurMetadata], RecordMetadata], delivery: Delivery
) -> asyncio.Future[RecordMetadata]:
    future = asyncio.get_running_loop().create_future()
    delivery.add_done_callback(partial(_settle, future, translate))
    return future


def _settle(
    future: asyncio.Future[RecordMetadata],
    translate: Callable[[OurMetadata], RecordMetadata],
    delivery: Delivery,
) -> None:
    if future.done():
        return
    try:
        future.set_result(translate(delivery.result()))
    except KafkaError as error:
        future.set_exception(aiokafka_error(error))
    except Exception as defect:  # noqa: BLE001 - the future must not stay pending
        future.set_exception(defect)
