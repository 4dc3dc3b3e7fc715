"""What brokers answer, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from kafkaclient.wire.api import ApiKey, BrokerInfo

__all__ = [
    "ApiVersions",
    "CreateTopicsResult",
    "DeleteTopicsResult",
    "InitProducerIdResult",
    "ListOffsetsResult",
    "MetadataResult",
    "PartitionOffset",
    "PartitionResult",
    "PartitionView",
    "ProduceResult",
    "RecordError",
    "TopicInfo",
    "TopicOutcome",
]


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """What one broker speaks: API key -> (oldest version, newest version)."""

    error_code: int
    ranges: Mapping[int, tuple[int, int]]
    throttle_ms: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    """The cluster's feature levels (KIP-584), as of version 3: ``transaction.version`` and more."""

    @property
    def transactions_v2(self) -> bool:
        """Whether the cluster's transactions are those of KIP-890."""
        return self.features.get("transaction.version", 0) >= 2

    def pick(self, api_key: ApiKey, min_version: int, max_version: int) -> int:
        """The newest version of the API that both sides speak.

        Raises :class:`~kafkaclient.errors.UnsupportedVersionError` when there is none.
        """
        if api_key not in self.ranges:
            raise UnsupportedVersionError(f"the broker does not offer {api_key.name} at all")
        oldest, newest = self.ranges[api_key]
        version = min(newest, max_version)
        if version < max(oldest, min_version):
            raise UnsupportedVersionError(
                f"no common version of {api_key.name}: the broker speaks {oldest} to {newest}, "
                f"this client {min_version} to {max_version}"
            )
        return version


class PartitionView(NamedTuple):
    """Who leads a partition; ``leader`` is -1 when nobody does, ``leader_epoch`` -1 when the
    broker that told it does not know epochs."""

    partition: int
    leader: int = -1
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic as a broker sees it. ``topic_id`` is None before Kafka 2.8 (Metadata v10)."""

    name: str
    error_code: int
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionView, ...]


@dataclass(frozen=True, slots=True)
class MetadataResult:
    """The answer to :class:`MetadataCall`; ``error_code`` is 0 before version 13 (KIP-1102)."""

    brokers: tuple[BrokerInfo, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[TopicInfo, ...]
    throttle_ms: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class InitProducerIdResult:
    """The identity given to an idempotent producer; both are -1 when ``error_code`` is not 0."""

    error_code: int
    producer_id: int
    producer_epoch: int
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """What became of one topic of a CreateTopics, CreatePartitions or DeleteTopics call.

    A created topic's partitions and replication factor are told as of version 5 (KIP-525) to who
    may describe its configuration; else they are -1.
    """

    name: str
    error_code: int
    error_message: str | None
    partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class CreateTopicsResult:
    """One outcome per topic asked for."""

    topics: tuple[TopicOutcome, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class DeleteTopicsResult:
    """One outcome per topic asked for."""

    topics: tuple[TopicOutcome, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """The offset found in one partition; -1 when there is none."""

    topic: str
    partition: int
    error_code: int
    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ListOffsetsResult:
    """One entry per partition asked for."""

    partitions: tuple[PartitionOffset, ...]
    throttle_ms: int


class RecordError(NamedTuple):
    """A record the broker refused: its index in the batch and the broker's reason."""

    batch_index: int
    message: str | None


class PartitionResult(NamedTuple):
    """What became of one partition's batch.

    ``base_offset`` is -1 unless it was written. ``log_append_time_ms`` is -1 unless the topic has
    ``message.timestamp.type=LogAppendTime``. ``leader_id`` and ``leader_epoch`` are -1 unless the
    broker knows of a newer leader (version 10 on).
    """

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: tuple[RecordError, ...]
    error_message: str | None
    leader_id: int
    leader_epoch: int


class ProduceResult(NamedTuple):
    """A broker's answer: per partition, and the addresses of the new leaders it names."""

    partitions: list[PartitionResult]
    throttle_ms: int
    endpoints: tuple[BrokerInfo, ...]
