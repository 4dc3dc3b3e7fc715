"""DescribeQuorum (55): the voters of the controller quorum.

Behavior
    Every broker is a controller; the live one with the lowest id is the active one.

Versions
    0 to 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 2)


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """The response's fields."""
    partition = {
        "partition_index": 0,
        "leader_id": min(state.alive_brokers(), default=-1),
        "current_voters": [{"replica_id": node_id} for node_id in state.brokers],
    }
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}]}


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    return {"error_code": error_code, "topics": []}
