"""Small public value types without behavior."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from uuid import UUID

    # Every type checker knows typing_extensions: default= is in typing only from Python 3.13 on.
    from typing_extensions import TypeVar

    Key_co = TypeVar("Key_co", default=bytes, covariant=True)
    Value_co = TypeVar("Value_co", default=bytes, covariant=True)
    Key_contra = TypeVar("Key_contra", default=Any, contravariant=True)
    Value_contra = TypeVar("Value_contra", default=Any, contravariant=True)
else:
    from typing import TypeVar

    Key_co, Value_co = TypeVar("Key_co", covariant=True), TypeVar("Value_co", covariant=True)
    Key_contra = TypeVar("Key_contra", contravariant=True)
    Value_contra = TypeVar("Value_contra", contravariant=True)

__all__ = [
    "NO_OFFSET",
    "NO_TIMESTAMP",
    "Buffer",
    "BulkMetadata",
    "ConsumerGroupMetadata",
    "Headers",
    "HeadersLike",
    "LastFetch",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetRange",
    "PreparedTransaction",
    "RecordMetadata",
    "TopicListing",
    "TopicPartition",
]


# --- Small public value types without behavior ----------------------------------------------------

Buffer: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
HeadersLike: TypeAlias = Iterable[tuple[str, Buffer | None]] | Mapping[str, Buffer | None] | None
"""Headers as callers give them: in pairs, a name may occur more than once."""

NO_OFFSET = -1
NO_TIMESTAMP = -1


class TopicPartition(NamedTuple):
    """A topic name and a partition number, counted from 0."""

    topic: str
    partition: int

    def __str__(self) -> str:
        if self.partition < 0:
            return f"{self.topic} (no partition chosen yet)"
        return f"{self.topic}-{self.partition}"


class TopicListing(NamedTuple):
    """A topic that exists (Java: ``TopicListing``)."""

    topic_id: UUID | None
    """A topic that is deleted and created again has another id. None before Kafka 2.8."""
    partitions: tuple[TopicPartition, ...]


class RecordMetadata(NamedTuple):
    """Where a record was written (Java: ``RecordMetadata``).

    ``offset`` is -1 if the broker does not return it (acks=0, or a retry that is a duplicate of a
    batch that the broker no longer remembers). ``timestamp`` is in milliseconds since the epoch:
    the broker's append time on topics with ``message.timestamp.type=LogAppendTime``, otherwise
    the record's timestamp, or the time of ``send``.

    ``timestamp_type`` says which of the two it is: 0 is CreateTime, 1 is LogAppendTime.
    ``log_start_offset`` is the first offset of the partition's log when the record was written.
    Both are -1 if the broker does not return them: with acks=0, for such a duplicate, and
    ``log_start_offset`` also before Produce version 5 (Kafka 1.0).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int = -1
    log_start_offset: int = NO_OFFSET

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self) -> bool:
        return self.offset != NO_OFFSET


class OffsetRange(NamedTuple):
    """``records`` records with consecutive offsets from ``first`` on.

    ``first`` is -1 if the broker does not return offsets (see :class:`RecordMetadata`).
    """

    first: int
    records: int

    @property
    def last(self) -> int:
        """The offset of the last record, -1 if it is not known."""
        return self.first if self.first == NO_OFFSET else self.first + self.records - 1


class BulkMetadata(NamedTuple):
    """Where the records of ``send_many`` or ``send_arrow`` were written.

    ``records`` is their number; ``partitions`` has their offsets in order, by partition.
    """

    topic: str
    records: int
    partitions: Mapping[int, tuple[OffsetRange, ...]]


class OffsetAndMetadata(NamedTuple):
    """An offset to commit for a group, which is the offset of the next record to read.

    ``leader_epoch`` is -1 if it is not known (Java: ``OffsetAndMetadata``). ``topic_id``: of the
    topic that was read. A topic that is created again has another id, and does not get the offset,
    if the brokers know OffsetCommit v10 or TxnOffsetCommit v6. None: it is the topic that has the
    name when the offset is committed.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    topic_id: UUID | None = None


class OffsetAndTimestamp(NamedTuple):
    """A record's offset, and its timestamp in milliseconds since the epoch (Java:
    ``OffsetAndTimestamp``)."""

    offset: int
    timestamp: int


class LastFetch(NamedTuple):
    """The end of a partition's log at its last fetch."""

    high_watermark: int
    """The offset of the next record that all in-sync replicas will have."""
    last_stable_offset: int
    """The offset of the first record of an open transaction, or the high watermark."""
    timestamp: int
    """When the broker's answer came, in milliseconds since the epoch."""


class ConsumerGroupMetadata(NamedTuple):
    """The group member that commits offsets (KIP-447; Java: ``ConsumerGroupMetadata``).

    With the member's id and the generation of its last join, the group refuses the offsets of a
    member whose partitions are now assigned to another member. Without them, only the
    transactional id fences.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class PreparedTransaction(NamedTuple):
    """A prepared transaction, which any client with this value can commit or abort (KIP-939:
    ``PreparedTxnState``)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
