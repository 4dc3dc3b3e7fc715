"""aiokafka's RecordMetadata and TopicPartition. aiokafka has no type annotations: the classes under
TYPE_CHECKING supply them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

__all__ = ["RecordMetadata", "TopicPartition"]

if TYPE_CHECKING:

    class TopicPartition(NamedTuple):
        """A topic's name and a partition's number."""

        topic: str
        partition: int

    class RecordMetadata(NamedTuple):
        """Where a record was written. ``timestamp`` is in milliseconds since the epoch;
        ``timestamp_type`` is 1 if the broker set the timestamp (LogAppendTime), otherwise 0."""

        topic: str
        partition: int
        topic_partition: TopicPartition
        offset: int
        timestamp: int | None
        timestamp_type: int
        log_start_offset: int | None

else:
    from aiokafka.structs import RecordMetadata, TopicPartition
