"""DescribeConfigs, IncrementalAlterConfigs, DescribeQuorum, the calls of reassignments, and
ElectLeaders."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey, by_topic
from kafkaclient.wire.codec import CodecCall, or_unknown, partitions_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# --- DescribeConfigs, IncrementalAlterConfigs and DescribeQuorum ----------------------------------


class ConfigKind(IntEnum):
    """The kind of a resource that has a configuration (Java: ``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a value comes from (Java: ``DescribeConfigsResponse.ConfigSource``)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN  # the broker is newer than this list


class ConfigOperation(IntEnum):
    """A change of one key (KIP-339); APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigEntry(NamedTuple):
    """One key of a resource. A sensitive ``value`` is None: brokers never send it."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool


class DescribedConfigs(NamedTuple):
    """The configuration of one resource."""

    kind: int
    name: str
    error_code: int
    error_message: str | None
    entries: tuple[ConfigEntry, ...]


class DescribeConfigsResult(NamedTuple):
    """One entry per resource of the request."""

    resources: tuple[DescribedConfigs, ...]
    throttle_ms: int


@dataclass(frozen=True)
class DescribeConfigsCall(
    CodecCall[DescribeConfigsResult], api_key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4)
):
    """The configurations of resources, by (kind, name). ``keys`` None requests all keys.

    A broker answers only for itself. The broker name ``""`` means the cluster-wide defaults, which
    every broker knows.
    """

    resources: tuple[tuple[ConfigKind, str], ...]
    keys: tuple[str, ...] | None = None

    def _fields(self) -> dict[str, Any]:
        keys = None if self.keys is None else list(self.keys)
        return {
            "resources": [
                {"resource_type": int(kind), "resource_name": name, "configuration_keys": keys}
                for kind, name in self.resources
            ]
        }

    def _result(self, message: Any) -> DescribeConfigsResult:
        resources = tuple(
            DescribedConfigs(
                resource.resource_type,
                resource.resource_name,
                resource.error_code,
                resource.error_message,
                tuple(
                    ConfigEntry(
                        c.name, c.value, ConfigSource(c.config_source), c.read_only, c.is_sensitive
                    )
                    for c in resource.configs
                ),
            )
            for resource in message.results
        )
        return DescribeConfigsResult(resources, message.throttle_time_ms)


class ConfigOutcome(NamedTuple):
    """The outcome of a change to one resource's configuration."""

    kind: int
    name: str
    error_code: int
    error_message: str | None


class AlterConfigsResult(NamedTuple):
    """One outcome per resource."""

    resources: tuple[ConfigOutcome, ...]
    throttle_ms: int


@dataclass(frozen=True)
class IncrementalAlterConfigsCall(
    CodecCall[AlterConfigsResult], api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1)
):
    """Changes some keys of a resource and leaves the others as they are (KIP-339)."""

    resource: tuple[ConfigKind, str]
    changes: tuple[tuple[str, ConfigOperation, str | None], ...]
    validate_only: bool = False

    def _fields(self) -> dict[str, Any]:
        kind, name = self.resource
        configs = [
            {"name": key, "config_operation": int(operation), "value": value}
            for key, operation, value in self.changes
        ]
        return {
            "resources": [{"resource_type": int(kind), "resource_name": name, "configs": configs}],
            "validate_only": self.validate_only,
        }

    def _result(self, message: Any) -> AlterConfigsResult:
        outcomes = tuple(
            ConfigOutcome(r.resource_type, r.resource_name, r.error_code, r.error_message)
            for r in message.responses
        )
        return AlterConfigsResult(outcomes, message.throttle_time_ms)


class DescribeQuorumResult(NamedTuple):
    """The controllers of a KRaft cluster: the active controller, and all voters."""

    error_code: int
    leader_id: int
    voters: tuple[int, ...]
    throttle_ms: int = 0


@dataclass(frozen=True)
class DescribeQuorumCall(
    CodecCall[DescribeQuorumResult], api_key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2)
):
    """The controllers (KIP-836). Metadata names a random broker as the controller."""

    def _fields(self) -> dict[str, Any]:
        partition = {"partition_index": 0}
        return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}]}

    def _result(self, message: Any) -> DescribeQuorumResult:
        partitions = [p for topic in message.topics for p in topic.partitions]
        if message.error_code or not partitions:
            return DescribeQuorumResult(message.error_code, -1, ())
        found = partitions[0]
        voters = tuple(voter.replica_id for voter in found.current_voters)
        return DescribeQuorumResult(found.error_code, found.leader_id, voters)


# --- AlterPartitionReassignments and ListPartitionReassignments (KIP-455) -------------------------


class ReassignmentOutcome(NamedTuple):
    """The outcome for one partition of a request."""

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


# --- ElectLeaders (KIP-183, KIP-460) --------------------------------------------------------------


@dataclass(frozen=True)
class ElectLeadersCall(
    CodecCall[AlterReassignmentsResult], api_key=ApiKey.ELECT_LEADERS, versions=(1, 2)
):
    """Makes preferred replicas leaders, or with ``unclean`` a replica that is not in sync where
    there is no leader. ``partitions`` None means all; the answer then leaves out the partitions
    that need no election. The outcomes are as of AlterPartitionReassignments."""

    partitions: tuple[TopicPartition, ...] | None = None
    unclean: bool = False
    timeout_ms: int = 30_000

    def _fields(self) -> dict[str, Any]:
        topics = None
        if self.partitions is not None:
            wanted = by_topic(self.partitions).items()
            topics = [{"topic": name, "partitions": indexes} for name, indexes in wanted]
        return {
            "election_type": int(self.unclean),
            "topic_partitions": topics,
            "timeout_ms": self.timeout_ms,
        }

    def _result(self, message: Any) -> AlterReassignmentsResult:
        outcomes = tuple(
            ReassignmentOutcome(
                TopicPartition(topic.topic, p.partition_id), p.error_code, p.error_message
            )
            for topic in message.replica_election_results
            for p in topic.partition_result
        )
        return AlterReassignmentsResult(
            message.error_code, None, outcomes, message.throttle_time_ms
        )


# --- DescribeLogDirs (KIP-113) --------------------------------------------------------------------


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
