"""The calls of the admin client, with their answers.

CreateTopics and DeleteTopics stand in ``codec.py``, what moves replicas in ``reassignments.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall
from kafkaclient.wire.results import TopicOutcome

__all__ = [
    "AlterConfigsResult",
    "ConfigEntry",
    "ConfigKind",
    "ConfigOperation",
    "ConfigOutcome",
    "ConfigSource",
    "CreatePartitionsCall",
    "CreatePartitionsResult",
    "DescribeConfigsCall",
    "DescribeConfigsResult",
    "DescribeQuorumCall",
    "DescribeQuorumResult",
    "DescribedConfigs",
    "IncrementalAlterConfigsCall",
    "NewPartitions",
]


# --- CreatePartitions -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic that shall have ``total`` partitions. ``assignments``: the replicas of each that is
    added, in order, the preferred leader first; empty leaves the choice to the controller."""

    name: str
    total: int
    assignments: tuple[tuple[int, ...], ...] = ()


class CreatePartitionsResult(NamedTuple):
    """One outcome per topic asked for."""

    topics: tuple[TopicOutcome, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class CreatePartitionsCall(CodecCall[CreatePartitionsResult]):
    """Add partitions to topics (KIP-195)."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 3
    topics: tuple[NewPartitions, ...]
    timeout_ms: int = 30_000
    validate_only: bool = False

    def _fields(self, version: int) -> dict[str, Any]:
        topics = [
            {
                "name": topic.name,
                "count": topic.total,
                # None, not empty: brokers count the entries of a list.
                "assignments": [{"broker_ids": list(replicas)} for replicas in topic.assignments]
                or None,
            }
            for topic in self.topics
        ]
        return {
            "topics": topics,
            "timeout_ms": self.timeout_ms,
            "validate_only": self.validate_only,
        }

    def _result(self, message: Any) -> CreatePartitionsResult:
        outcomes = tuple(
            TopicOutcome(t.name, t.error_code, t.error_message) for t in message.results
        )
        return CreatePartitionsResult(outcomes, message.throttle_time_ms)


# --- configurations ---------------------------------------------------------------------------


class ConfigKind(IntEnum):
    """What a configuration belongs to; Kafka's numbers (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a value comes from; Kafka's numbers (``DescribeConfigsResponse.ConfigSource``)."""

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
        return cls.UNKNOWN  # of a broker that is newer than this list


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to a key; the last two are for lists (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigEntry(NamedTuple):
    """One key of a resource. ``value`` is None when it is sensitive: brokers never tell it."""

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
    """One entry per resource asked for."""

    resources: tuple[DescribedConfigs, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class DescribeConfigsCall(CodecCall[DescribeConfigsResult]):
    """Configurations by (kind, name) of a resource. ``keys`` None asks for all of them.

    A broker answers for itself only; the name ``""`` of a broker stands for the cluster-wide
    defaults, which any broker tells.
    """

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS
    min_version: ClassVar[int] = 1
    max_version: ClassVar[int] = 4
    resources: tuple[tuple[ConfigKind, str], ...]
    keys: tuple[str, ...] | None = None

    def _fields(self, version: int) -> dict[str, Any]:
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
                        entry.name,
                        entry.value,
                        ConfigSource(entry.config_source),
                        entry.read_only,
                        entry.is_sensitive,
                    )
                    for entry in resource.configs
                ),
            )
            for resource in message.results
        )
        return DescribeConfigsResult(resources, message.throttle_time_ms)


class ConfigOutcome(NamedTuple):
    """What became of a change to one resource's configuration."""

    kind: int
    name: str
    error_code: int
    error_message: str | None


class AlterConfigsResult(NamedTuple):
    """One outcome per resource."""

    resources: tuple[ConfigOutcome, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigsCall(CodecCall[AlterConfigsResult]):
    """Change some keys of a resource and leave the others alone (KIP-339)."""

    api_key: ClassVar[ApiKey] = ApiKey.INCREMENTAL_ALTER_CONFIGS
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 1
    resource: tuple[ConfigKind, str]
    changes: tuple[tuple[str, ConfigOperation, str | None], ...]
    validate_only: bool = False

    def _fields(self, version: int) -> dict[str, Any]:
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


# --- the controllers --------------------------------------------------------------------------


class DescribeQuorumResult(NamedTuple):
    """The controllers of a KRaft cluster: the active one, and all that vote."""

    error_code: int
    leader_id: int
    voters: tuple[int, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeQuorumCall(CodecCall[DescribeQuorumResult]):
    """Who the controllers are (KIP-836). Metadata names a broker at random as the controller."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_QUORUM
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 2

    def _fields(self, version: int) -> dict[str, Any]:
        partition = {"partition_index": 0}
        return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}]}

    def _result(self, message: Any) -> DescribeQuorumResult:
        partitions = [p for topic in message.topics for p in topic.partitions]
        if message.error_code or not partitions:
            return DescribeQuorumResult(message.error_code, -1, ())
        found = partitions[0]
        voters = tuple(voter.replica_id for voter in found.current_voters)
        return DescribeQuorumResult(found.error_code, found.leader_id, voters)
