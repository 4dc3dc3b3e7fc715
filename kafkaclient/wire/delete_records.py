"""DeleteRecords: removes the beginning of partitions (KIP-107)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall

if TYPE_CHECKING:
    from collections.abc import Mapping


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
