"""ListOffsets (2): the start and end offsets of a partition, and offsets by timestamp.

Behavior
    Only the partition's leader answers. For replica id -2 any replica answers with its own log end
    offset. Timestamp -1 is the log end offset, or with isolation level 1 the last stable offset; -2
    is the log start offset. Any other timestamp gives the first record that is not older, or -1.

Versions
    1 to 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState
    from kafkaclient.testing.fake.topics import FakePartition

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (1, 7)

_LATEST, _EARLIEST = -1, -2
_DEBUG_REPLICA = -2


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    return _for_each(request, lambda topic, asked: _offset(state, request, topic, asked))


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every partition."""
    return _for_each(request, lambda _, asked: _failed(asked.partition_index, error_code))


def _for_each(request: Request, answer_one: Any) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [answer_one(topic.name, asked) for asked in topic.partitions],
            }
            for topic in request.message.topics
        ]
    }


def _offset(state: ClusterState, request: Request, topic: str, asked: Any) -> dict[str, Any]:
    partition = state.partition(topic, asked.partition_index)
    if partition is None:
        return _failed(asked.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    anywhere = request.message.replica_id == _DEBUG_REPLICA
    if partition.leader != request.broker and not (
        anywhere and request.broker in partition.replicas
    ):
        return _failed(asked.partition_index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    committed = request.message.isolation_level == 1
    offset, timestamp = _find(partition, asked.timestamp, committed=committed)
    if anywhere and asked.timestamp == _LATEST:
        offset = partition.end_offset_at(request.broker)
    return {
        "partition_index": asked.partition_index,
        "error_code": ErrorCode.NONE,
        "offset": offset,
        "timestamp": timestamp,
        "leader_epoch": partition.leader_epoch,
    }


def _find(partition: FakePartition, timestamp: int, *, committed: bool) -> tuple[int, int]:
    log = partition.log
    end = log.last_stable_offset if committed else log.end_offset
    if timestamp == _LATEST:
        return end, -1
    if timestamp == _EARLIEST:
        return log.start_offset, -1
    for record in log.records():
        if record.timestamp >= timestamp and log.start_offset <= record.offset < end:
            return record.offset, record.timestamp
    return -1, -1


def _failed(index: int, error_code: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": int(error_code),
        "offset": -1,
        "timestamp": -1,
        "leader_epoch": -1,
    }
