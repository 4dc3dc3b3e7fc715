"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall, or_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping


# --- CreateTopics, DeleteTopics and CreatePartitions ----------------------------------------------


class TopicOutcome(NamedTuple):
    """What the broker did with one topic of the request.

    The partitions and replication factor of a created topic are known from version 5 on (KIP-525),
    if the client may describe the topic's configuration; otherwise they are -1.
    """

    name: str
    error_code: int
    error_message: str | None
    partitions: int = -1
    replication_factor: int = -1


class TopicOutcomes(NamedTuple):
    """One outcome per topic of the request."""

    topics: tuple[TopicOutcome, ...]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 takes the broker's default, from version 4 on (KIP-464).

    ``assignments`` maps every partition to its replicas, the preferred leader first. With
    assignments ``partitions`` and ``replication_factor`` must be -1.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class CreateTopicsCall(CodecCall[TopicOutcomes], api_key=ApiKey.CREATE_TOPICS, versions=(2, 7)):
    """Creates topics. The broker waits up to ``timeout_ms`` until they exist on all brokers."""

    topics: tuple[NewTopic, ...]
    timeout_ms: int = 30_000
    validate_only: bool = False

    def _fields(self) -> dict[str, Any]:
        topics = [
            {
                "name": topic.name,
                "num_partitions": topic.partitions,
                "replication_factor": topic.replication_factor,
                "assignments": [
                    {"partition_index": partition, "broker_ids": list(brokers)}
                    for partition, brokers in topic.assignments.items()
                ],
                "configs": [
                    {"name": name, "value": value} for name, value in topic.configs.items()
                ],
            }
            for topic in self.topics
        ]
        return {
            "topics": topics,
            "timeout_ms": self.timeout_ms,
            "validate_only": self.validate_only,
        }

    def _result(self, message: Any) -> TopicOutcomes:
        outcomes = tuple(
            TopicOutcome(
                t.name,
                t.error_code,
                t.error_message,
                or_unknown(t.num_partitions),
                or_unknown(t.replication_factor),
            )
            for t in message.topics
        )
        return TopicOutcomes(outcomes, message.throttle_time_ms)


@dataclass(frozen=True)
class DeleteTopicsCall(CodecCall[TopicOutcomes], api_key=ApiKey.DELETE_TOPICS, versions=(1, 6)):
    """Deletes topics by name."""

    topics: tuple[str, ...]
    timeout_ms: int = 30_000

    def _fields(self) -> dict[str, Any]:
        return {
            "topic_names": list(self.topics),
            # Version 6 can name topics by id as well: names are in structs.
            "topics": [{"name": topic} for topic in self.topics],
            "timeout_ms": self.timeout_ms,
        }

    def _result(self, message: Any) -> TopicOutcomes:
        outcomes = tuple(
            TopicOutcome(t.name, t.error_code, t.error_message)
            for t in message.responses
            if t.name is not None
        )
        return TopicOutcomes(outcomes, message.throttle_time_ms)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic that gets ``total`` partitions. ``assignments``: the replicas of each new partition,
    in order, the preferred leader first; if it is empty, the controller chooses."""

    name: str
    total: int
    assignments: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class CreatePartitionsCall(
    CodecCall[TopicOutcomes], api_key=ApiKey.CREATE_PARTITIONS, versions=(0, 3)
):
    """Adds partitions to topics (KIP-195)."""

    topics: tuple[NewPartitions, ...]
    timeout_ms: int = 30_000
    validate_only: bool = False

    def _fields(self) -> dict[str, Any]:
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

    def _result(self, message: Any) -> TopicOutcomes:
        outcomes = tuple(
            TopicOutcome(t.name, t.error_code, t.error_message) for t in message.results
        )
        return TopicOutcomes(outcomes, message.throttle_time_ms)


# --- DeleteRecords: removes the beginning of partitions (KIP-107) ---------------------------------


class DeletedRecords(NamedTuple):
    """The outcome in one partition. ``low_watermark``: its first offset now, -1 with an error."""

    partition: TopicPartition
    error_code: int
    low_watermark: int


class DeleteRecordsResult(NamedTuple):
    """One entry per partition of the request."""

    partitions: tuple[DeletedRecords, ...]
    throttle_ms: int


@dataclass(frozen=True)
class DeleteRecordsCall(
    CodecCall[DeleteRecordsResult], api_key=ApiKey.DELETE_RECORDS, versions=(0, 2)
):
    """Deletes the records before each offset; -1 is the high watermark. Must go to the partitions'
    leader, which waits up to ``timeout_ms`` for the other replicas."""

    offsets: Mapping[TopicPartition, int]
    timeout_ms: int = 30_000

    def _fields(self) -> dict[str, Any]:
        topics: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
        for (topic, partition), offset in self.offsets.items():
            topics[topic].append({"partition_index": partition, "offset": offset})
        listed = [{"name": name, "partitions": found} for name, found in topics.items()]
        return {"topics": listed, "timeout_ms": self.timeout_ms}

    def _result(self, message: Any) -> DeleteRecordsResult:
        outcomes = tuple(
            DeletedRecords(
                TopicPartition(topic.name, each.partition_index),
                each.error_code,
                each.low_watermark,
            )
            for topic in message.topics
            for each in topic.partitions
        )
        return DeleteRecordsResult(outcomes, message.throttle_time_ms or 0)
