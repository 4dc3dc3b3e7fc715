"""DescribeLogDirs (35): the sizes of a broker's replicas on disk.

Behavior
    A broker has one directory with all its replicas. The size of a replica that is being added is
    in proportion to the records of :meth:`FakeCluster.copy_replica`. No replica lags.

Versions
    1 to 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState
    from kafkaclient.testing.fake.topics import FakePartition

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (1, 4)

_DIRECTORY = "/fake/logs"


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    asked = request.message.topics
    wanted = None if asked is None else {each.topic: set(each.partitions) for each in asked}
    topics = []
    for topic in state.topics.values():
        partitions = [
            {
                "partition_index": partition.index,
                "partition_size": _size(partition, request.broker),
                "offset_lag": 0,
                "is_future_key": False,
            }
            for partition in topic.partitions
            if request.broker in partition.replicas
            and (wanted is None or partition.index in wanted.get(topic.name, ()))
        ]
        if partitions:
            topics.append({"name": topic.name, "partitions": partitions})
    directory = {"error_code": int(ErrorCode.NONE), "log_dir": _DIRECTORY, "topics": topics}
    return {"results": [directory]}


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The answer with a directory that cannot be read."""
    return {"results": [{"error_code": error_code, "log_dir": _DIRECTORY, "topics": []}]}


def _size(partition: FakePartition, node_id: int) -> int:
    end = partition.log.end_offset
    whole = sum(header.size for header, _ in partition.log.batches)
    return whole * partition.end_offset_at(node_id) // end if end else 0
