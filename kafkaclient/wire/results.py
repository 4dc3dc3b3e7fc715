"""The values in responses to Metadata and Produce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

    from kafkaclient.wire.api import BrokerInfo


class PartitionView(NamedTuple):
    """A partition and its leader; ``leader`` is -1 if there is none. ``leader_epoch`` is -1 if the
    broker that sent the metadata does not know epochs."""

    partition: int
    leader: int = -1
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic in the metadata. ``topic_id`` is None before Kafka 2.8 (Metadata v10)."""

    name: str
    error_code: int
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionView, ...]


@dataclass(frozen=True, slots=True)
class MetadataResult:
    """The response to Metadata; ``error_code`` is 0 before version 13 (KIP-1102)."""

    brokers: tuple[BrokerInfo, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[TopicInfo, ...]
    throttle_ms: int
    error_code: int = 0


class RecordError(NamedTuple):
    """A record that the broker rejected: its index in the batch, and the broker's reason."""

    batch_index: int
    message: str | None


class PartitionResult(NamedTuple):
    """The outcome of one partition's batch.

    ``base_offset`` is -1 unless the batch was written. ``log_append_time_ms`` is -1 unless the
    topic has ``message.timestamp.type=LogAppendTime``. ``leader_id`` and ``leader_epoch`` are -1
    unless the broker knows a newer leader (version 10 on).
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
    """The outcome of each partition, and the addresses of new leaders."""

    partitions: list[PartitionResult]
    throttle_ms: int
    endpoints: tuple[BrokerInfo, ...]
