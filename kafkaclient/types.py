"""Small public value types, free of any behaviour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

__all__ = [
    "NO_OFFSET",
    "NO_TIMESTAMP",
    "Buffer",
    "BulkMetadata",
    "ConsumerGroupMetadata",
    "Headers",
    "HeadersLike",
    "OffsetAndMetadata",
    "OffsetRange",
    "PreparedTransaction",
    "RecordMetadata",
    "TopicPartition",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
HeadersLike: TypeAlias = Iterable[tuple[str, Buffer | None]] | Mapping[str, Buffer | None] | None
"""What callers may give: names may repeat in pairs, not in a mapping."""

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


class RecordMetadata(NamedTuple):
    """Where a record was written (Java: ``RecordMetadata``).

    ``offset`` is -1 when the broker does not tell it (acks=0, or a retry that the broker
    recognised as a duplicate it no longer remembers). ``timestamp`` is in milliseconds since the
    epoch: the broker's append time on topics with ``message.timestamp.type=LogAppendTime``, else
    the time given with the record, or taken when it was sent.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self) -> bool:
        return self.offset != NO_OFFSET


class OffsetRange(NamedTuple):
    """``records`` records at the offsets from ``first`` on, without a gap.

    ``first`` is -1 when the broker does not tell offsets (see :class:`RecordMetadata`).
    """

    first: int
    records: int

    @property
    def last(self) -> int:
        """The offset of the last record, -1 when it is not known."""
        return self.first if self.first == NO_OFFSET else self.first + self.records - 1


class BulkMetadata(NamedTuple):
    """Where the records of ``send_many`` or ``send_arrow`` were written.

    ``records`` is how many; ``partitions`` has, by partition, their offsets in order.
    """

    topic: str
    records: int
    partitions: Mapping[int, tuple[OffsetRange, ...]]


class OffsetAndMetadata(NamedTuple):
    """An offset to commit for a group: that of the next record to read.

    ``leader_epoch`` is -1 when it is not known (Java: ``OffsetAndMetadata``).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """Who commits offsets for a group (KIP-447; Java: ``ConsumerGroupMetadata``).

    With the member's id and the generation of its last join the group refuses the offsets of a
    member whose partitions it has given to others; without them only the transactional id fences.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class PreparedTransaction(NamedTuple):
    """A transaction that holds all its records and waits to be committed or aborted, by whoever
    has this (KIP-939: ``PreparedTxnState``)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
