"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455), and DescribeLogDirs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.wire.api import ApiKey, by_topic
from kafkaclient.wire.codec import CodecCall, or_unknown, partitions_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.types import TopicPartition


class ReassignmentOutcome(NamedTuple):
    """The outcome for one partition of an AlterPartitionReassignments request."""

    partition: TopicPartition
    error_code: int
    error_message: str | None


class AlterReassignmentsResult(NamedTuple):
    """The error code of the whole request, or one outcome per partition."""

    error_code: int
    error_message: str | None
    partitions: tuple[ReassignmentOutcome, ...]
    throttle_ms: int


@dataclass(frozen=True)
class AlterReassignmentsCall(
    CodecCall[AlterReassignmentsResult],
    api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
):
    """Assigns other replicas to partitions; None cancels a reassignment."""

    replicas: Mapping[TopicPartition, tuple[int, ...] | None]
    timeout_ms: int = 30_000

    def _fields(self) -> dict[str, Any]:
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
            ReassignmentOutcome(tp, p.error_code, p.error_message)
            for tp, p in partitions_in(message.responses)
        )
        return AlterReassignmentsResult(
            message.error_code, message.error_message, outcomes, message.throttle_time_ms
        )


class OngoingReassignment(NamedTuple):
    """A reassignment in progress: all replicas, and which of them are added and removed."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ListReassignmentsResult(NamedTuple):
    """The reassignments in progress; other partitions are left out."""

    error_code: int
    error_message: str | None
    partitions: tuple[OngoingReassignment, ...]
    throttle_ms: int


@dataclass(frozen=True)
class ListReassignmentsCall(
    CodecCall[ListReassignmentsResult], api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0)
):
    """Lists the reassignments in progress. ``partitions`` None means all topics."""

    partitions: tuple[TopicPartition, ...] | None = None
    timeout_ms: int = 30_000

    def _fields(self) -> dict[str, Any]:
        topics = None
        if self.partitions is not None:
            wanted = by_topic(self.partitions).items()
            topics = [{"name": name, "partition_indexes": indexes} for name, indexes in wanted]
        return {"timeout_ms": self.timeout_ms, "topics": topics}

    def _result(self, message: Any) -> ListReassignmentsResult:
        moves = tuple(
            OngoingReassignment(
                tp, tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
            )
            for tp, p in partitions_in(message.topics)
        )
        return ListReassignmentsResult(
            message.error_code, message.error_message, moves, message.throttle_time_ms
        )


class ReplicaSize(NamedTuple):
    """A replica on a disk: its size in bytes, and its lag in records. A future replica
    (``is_future``) lags behind the replica of this broker that it will replace."""

    partition: TopicPartition
    size: int
    lag: int
    is_future: bool


class LogDir(NamedTuple):
    """One log directory of a broker. The byte counts are -1 before version 4 (KIP-827). A cordoned
    directory gets no new replicas (KIP-1066); before version 5 none is cordoned."""

    path: str
    error_code: int
    replicas: tuple[ReplicaSize, ...]
    total_bytes: int = -1
    usable_bytes: int = -1
    cordoned: bool = False


class DescribeLogDirsResult(NamedTuple):
    """The log directories of one broker."""

    error_code: int
    directories: tuple[LogDir, ...]
    throttle_ms: int


@dataclass(frozen=True)
class DescribeLogDirsCall(
    CodecCall[DescribeLogDirsResult], api_key=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5)
):
    """Describes a broker's log directories (KIP-113). ``topics`` None means all topics."""

    topics: Mapping[str, Sequence[int]] | None = None

    def _fields(self) -> dict[str, Any]:
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
                    ReplicaSize(tp, p.partition_size, p.offset_lag, p.is_future_key)
                    for tp, p in partitions_in(found.topics)
                ),
                or_unknown(found.total_bytes),
                or_unknown(found.usable_bytes),
                bool(found.is_cordoned),
            )
            for found in message.results
        )
        return DescribeLogDirsResult(
            message.error_code or 0, directories, message.throttle_time_ms or 0
        )
