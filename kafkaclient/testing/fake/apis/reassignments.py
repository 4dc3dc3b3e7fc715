"""AlterPartitionReassignments (45) and ListPartitionReassignments (46), both from KIP-455.

Behavior
    Another order of the same replicas takes effect at once. A reassignment puts the new replicas
    before the replicas to remove, and is ongoing until ``FakeCluster.finish_reassignments``. null
    instead of replicas cancels it: the earlier replicas stay, in their current order. To cancel
    without an ongoing reassignment gets NO_REASSIGNMENT_IN_PROGRESS. Each partition has its own
    outcome.

Versions
    0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["ALTER", "LIST"]


class _Alter:
    VERSIONS = (0, 0)

    def answer(self, state: ClusterState, request: Request) -> dict[str, Any]:
        return _for_each(request, lambda topic, asked: _move(state, topic, asked))

    def refuse(self, request: Request, error_code: int) -> dict[str, Any]:
        return {"error_code": error_code, "error_message": None, "responses": []}


class _List:
    VERSIONS = (0, 0)

    def answer(self, state: ClusterState, request: Request) -> dict[str, Any]:
        moving = []
        for topic in state.topics.values():
            partitions = [
                {
                    "partition_index": p.index,
                    "replicas": list(p.replicas),
                    "adding_replicas": [n for n in p.moving_to if n not in p.moving_from],
                    "removing_replicas": [n for n in p.moving_from if n not in p.moving_to],
                }
                for p in topic.partitions
                if p.moving_to
            ]
            if partitions:
                moving.append({"name": topic.name, "partitions": partitions})
        return {"error_message": None, "topics": moving}

    def refuse(self, request: Request, error_code: int) -> dict[str, Any]:
        return {"error_code": error_code, "error_message": None, "topics": []}


ALTER = _Alter()
LIST = _List()


def _for_each(request: Request, outcome: Any) -> dict[str, Any]:
    return {
        "error_message": None,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": asked.partition_index,
                        "error_code": int(outcome(topic.name, asked)),
                        "error_message": None,
                    }
                    for asked in topic.partitions
                ],
            }
            for topic in request.message.topics
        ],
    }


def _move(state: ClusterState, topic: str, asked: Any) -> ErrorCode:
    partition = state.partition(topic, asked.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    before = partition.moving_from or list(partition.replicas)
    if asked.replicas is None:
        if not partition.moving_to:
            return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        partition.replicas = [node for node in partition.replicas if node in before]
        partition.moving_to, partition.moving_from = [], []
        partition.copied = {}
        return ErrorCode.NONE
    wanted = list(asked.replicas)
    if not wanted or len(set(wanted)) < len(wanted) or set(wanted) - set(state.brokers):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not partition.moving_to and set(wanted) == set(before):
        partition.replicas = wanted
        return ErrorCode.NONE
    partition.moving_to, partition.moving_from = wanted, before
    partition.replicas = [*wanted, *sorted(set(before) - set(wanted))]
    return ErrorCode.NONE
