"""ListOffsets: the offsets at which partitions begin, end, or reach a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall, partitions_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LATEST_TIMESTAMP = -1
"""Requests the offset that the next record will get."""
EARLIEST_TIMESTAMP = -2
"""Requests the first offset in the log."""


class PartitionOffset(NamedTuple):
    """The offset found in one partition; -1 if there is none."""

    topic: str
    partition: int
    error_code: int
    offset: int
    timestamp: int
    leader_epoch: int


class ListOffsetsResult(NamedTuple):
    """One entry per partition of the request."""

    partitions: tuple[PartitionOffset, ...]
    throttle_ms: int


@dataclass(frozen=True)
class ListOffsetsCall(
    # Later versions only add special timestamps that this client does not use.
    CodecCall[ListOffsetsResult],
    api_key=ApiKey.LIST_OFFSETS,
    versions=(1, 7),
):
    """Offsets by timestamp (default: the end). Must go to the partitions' leader.

    With ``read_committed`` the end is where the oldest open transaction begins. With ``replica_id``
    -2 any replica answers, with the beginning or end of its own log.
    """

    partitions: Mapping[str, Sequence[int]]
    timestamp: int = LATEST_TIMESTAMP
    read_committed: bool = False
    replica_id: int = -1

    def _fields(self) -> dict[str, Any]:
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": partition, "timestamp": self.timestamp}
                    for partition in partitions
                ],
            }
            for topic, partitions in self.partitions.items()
        ]
        isolation = int(self.read_committed)
        return {"replica_id": self.replica_id, "isolation_level": isolation, "topics": topics}

    def _result(self, message: Any) -> ListOffsetsResult:
        offsets = tuple(
            PartitionOffset(*tp, p.error_code, p.offset, p.timestamp, p.leader_epoch)
            for tp, p in partitions_in(message.topics)
        )
        return ListOffsetsResult(offsets, message.throttle_time_ms or 0)
