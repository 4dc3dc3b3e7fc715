"""The calls that move replicas (KIP-455), and the one that tells how large they are."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall, or_unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "AlterReassignmentsCall",
    "AlterReassignmentsResult",
    "DescribeLogDirsCall",
    "DescribeLogDirsResult",
    "ListReassignmentsCall",
    "ListReassignmentsResult",
    "LogDir",
    "OngoingReassignment",
    "ReassignmentOutcome",
    "ReplicaSize",
]


# --- reassignments ----------------------------------------------------------------------------


class ReassignmentOutcome(NamedTuple):
    """What became of one partition of an AlterPartitionReassignments call."""

    partition: TopicPartition
    error_code: int
    error_message: str | None


class AlterReassignmentsResult(NamedTuple):
    """``error_code`` is of the whole request; one outcome per partition otherwise."""

    error_code: int
    error_message: str | None
    partitions: tuple[ReassignmentOutcome, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class AlterReassignmentsCall(CodecCall[AlterReassignmentsResult]):
    """Give partitions other replicas (KIP-455); None cancels a move that is under way."""

    api_key: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 0
    replicas: Mapping[TopicPartition, tuple[int, ...] | None]
    timeout_ms: int = 30_000

    def _fields(self, version: int) -> dict[str, Any]:
        topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for (topic, partition), replicas in self.replicas.items():
            wanted = None if replicas is None else list(replicas)
            topics[topic].append({"partition_index": partition, "replicas": wanted})
        return {
            "timeout_ms": self.timeout_ms,
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
        }

    def _result(self, message: Any) -> AlterReassignmentsResult:
        outcomes = tuple(
            ReassignmentOutcome(
                TopicPartition(topic.name, p.partition_index), p.error_code, p.error_message
            )
            for topic in message.responses
            for p in topic.partitions
        )
        return AlterReassignmentsResult(
            message.error_code, message.error_message, outcomes, message.throttle_time_ms
        )


class OngoingReassignment(NamedTuple):
    """A move under way: all replicas of the partition, and which of them come and go."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ListReassignmentsResult(NamedTuple):
    """The moves under way; partitions that do not move are left out."""

    error_code: int
    error_message: str | None
    partitions: tuple[OngoingReassignment, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class ListReassignmentsCall(CodecCall[ListReassignmentsResult]):
    """The moves under way (KIP-455). ``partitions`` None asks for those of every topic."""

    api_key: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_REASSIGNMENTS
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 0
    partitions: tuple[TopicPartition, ...] | None = None
    timeout_ms: int = 30_000

    def _fields(self, version: int) -> dict[str, Any]:
        return {
            "timeout_ms": self.timeout_ms,
            "topics": None if self.partitions is None else _by_topic(self.partitions),
        }

    def _result(self, message: Any) -> ListReassignmentsResult:
        moves = tuple(
            OngoingReassignment(
                TopicPartition(topic.name, p.partition_index),
                tuple(p.replicas),
                tuple(p.adding_replicas),
                tuple(p.removing_replicas),
            )
            for topic in message.topics
            for p in topic.partitions
        )
        return ListReassignmentsResult(
            message.error_code, message.error_message, moves, message.throttle_time_ms
        )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]


# --- log directories --------------------------------------------------------------------------


class ReplicaSize(NamedTuple):
    """A replica on a disk: its bytes, by how many records it lags behind (``is_future``: behind
    the replica that it is to take the place of on this broker)."""

    partition: TopicPartition
    size: int
    lag: int
    is_future: bool


class LogDir(NamedTuple):
    """One log directory of a broker; the bytes are -1 before version 4 (KIP-827)."""

    path: str
    error_code: int
    replicas: tuple[ReplicaSize, ...]
    total_bytes: int = -1
    usable_bytes: int = -1


class DescribeLogDirsResult(NamedTuple):
    """The log directories of the broker asked."""

    error_code: int
    directories: tuple[LogDir, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class DescribeLogDirsCall(CodecCall[DescribeLogDirsResult]):
    """What is on a broker's disks (KIP-113). ``topics`` None asks for all of them."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_LOG_DIRS
    min_version: ClassVar[int] = 1
    max_version: ClassVar[int] = 4
    topics: Mapping[str, Sequence[int]] | None = field(default=None)

    def _fields(self, version: int) -> dict[str, Any]:
        if self.topics is None:
            return {"topics": None}
        wanted = [{"topic": t, "partitions": list(each)} for t, each in self.topics.items()]
        return {"topics": wanted}

    def _result(self, message: Any) -> DescribeLogDirsResult:
        directories = tuple(
            LogDir(
                found.log_dir,
                found.error_code,
                tuple(
                    ReplicaSize(
                        TopicPartition(topic.name, p.partition_index),
                        p.partition_size,
                        p.offset_lag,
                        p.is_future_key,
                    )
                    for topic in found.topics
                    for p in topic.partitions
                ),
                or_unknown(found.total_bytes),
                or_unknown(found.usable_bytes),
            )
            for found in message.results
        )
        return DescribeLogDirsResult(
            message.error_code or 0, directories, message.throttle_time_ms or 0
        )
