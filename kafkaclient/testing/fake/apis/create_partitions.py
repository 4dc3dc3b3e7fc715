"""CreatePartitions (37): adds partitions to topics, at once on all brokers.

Behavior
    Any broker answers. A manual assignment must list the replicas of the new partitions only, each
    with as many different brokers as the other partitions have.

Versions
    0 to 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (0, 3)


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """Add the partitions; the response's fields."""
    outcomes = []
    for asked in request.message.topics:
        code, problem = _extend(state, asked, validate_only=request.message.validate_only)
        outcomes.append({"name": asked.name, "error_code": int(code), "error_message": problem})
    return {"results": outcomes}


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every topic."""
    return {"results": [{"name": t.name, "error_code": error_code} for t in request.message.topics]}


def _extend(
    state: ClusterState, asked: Any, *, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    topic = state.topics.get(asked.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    has = len(topic.partitions)
    if asked.count <= has:
        return (
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {has} partition(s); {asked.count} would not be "
            "an increase.",
        )
    assignments = [list(each.broker_ids) for each in asked.assignments or ()]
    if asked.assignments is not None:
        factor = len(topic.partitions[0].replicas)
        if len(assignments) != asked.count - has:
            return (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{asked.count - has} partitions are added, {len(assignments)} are assigned.",
            )
        if any(len(set(each)) != factor or set(each) - set(state.brokers) for each in assignments):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Not {factor} brokers: {assignments}"
    if not validate_only:
        if assignments:
            state.add_partitions(topic, assignments)
        else:
            state.grow_topic(topic, asked.count)
    return ErrorCode.NONE, None
