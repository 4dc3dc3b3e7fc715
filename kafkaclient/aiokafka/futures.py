"""The futures that ``send`` returns: deliveries as asyncio futures, with aiokafka's outcomes.

``futures.pxd`` has the C types.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import cython

from kafkaclient.aiokafka.errors import aiokafka_error
from kafkaclient.aiokafka.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kafkaclient import Delivery
    from kafkaclient import RecordMetadata as OurMetadata
    from kafkaclient.errors import KafkaError

__all__ = ["SendFuture", "UnacknowledgedFuture", "future_class"]

if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)
    from kafkaclient import DeliveryFuture

# These names are C variables (futures.pxd): a module attribute would be looked up in a
# dictionary for each record.
_new = tuple.__new__  # the classes' own __new__ are Python functions
_metadata = RecordMetadata
_topic_partition = lru_cache(maxsize=4096)(TopicPartition)
_aiokafka_error = aiokafka_error


class SendFuture(DeliveryFuture):
    """The outcome of one record, or of one batch: aiokafka's RecordMetadata, or an error of
    aiokafka's class. Both are made when the outcome is read."""

    __slots__ = ()

    def _translate_result(self, metadata: OurMetadata) -> Any:
        topic, partition, offset, timestamp, timestamp_type, log_start_offset = metadata
        return _new(
            _metadata,
            (
                topic,
                partition,
                _topic_partition(topic, partition),
                offset,
                timestamp,
                1 if timestamp_type == 1 else 0,
                None if log_start_offset == -1 else log_start_offset,
            ),
        )

    def _translate_error(self, error: KafkaError) -> BaseException:
        return _aiokafka_error(error)


class UnacknowledgedFuture(SendFuture):
    """With ``acks=0`` no broker answers: the result is None."""

    __slots__ = ()

    def _translate_result(self, metadata: OurMetadata) -> Any:
        return None


def future_class(acks: int) -> Callable[[Delivery], asyncio.Future[RecordMetadata]]:
    """The class of the futures that ``send`` returns, for this option ``acks``.

    It is typed as ``asyncio.Future``, because callers annotate it so; it is no subclass of it.
    """
    kind = UnacknowledgedFuture if acks == 0 else SendFuture
    return cast("Callable[[Delivery], asyncio.Future[RecordMetadata]]", kind)
