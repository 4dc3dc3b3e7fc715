"""DescribeConfigs, IncrementalAlterConfigs and DescribeQuorum."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall


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
