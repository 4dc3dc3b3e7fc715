"""aiokafka's record types, with types for type checkers, which aiokafka does not tell them; and
aiokafka's way to read a timestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

__all__ = ["RecordMetadata", "TopicPartition", "whole_ms"]

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


def whole_ms(timestamp_ms: Any) -> int:
    """A timestamp as an int. As in aiokafka a float such as ``time.time() * 1000`` is truncated.

    Raises TypeError for anything but a number.
    """
    if isinstance(timestamp_ms, float) or hasattr(timestamp_ms, "__index__"):
        return int(timestamp_ms)
    raise TypeError(f"a timestamp must be a number, not {timestamp_ms!r}")
