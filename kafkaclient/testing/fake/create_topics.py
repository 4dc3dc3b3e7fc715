"""CreateTopics (19): creates topics, at once and everywhere.

Behaviour
    Any broker answers. -1 takes the cluster's defaults; a manual assignment is followed. Of the
    configurations ``max.message.bytes`` and ``min.insync.replicas`` count, others are ignored.

Versions
    2 to 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode
from kafkaclient.testing.fake.topics import DEFAULT_MAX_MESSAGE_BYTES, is_valid_topic_name

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["VERSIONS", "answer", "refuse"]

VERSIONS = (2, 7)

_DEFAULT = -1


def answer(state: ClusterState, request: Request) -> dict[str, Any]:
    """Create the topics; the response's fields."""
    outcomes = []
    for topic in request.message.topics:
        code, problem = _create(state, topic, validate_only=request.message.validate_only)
        outcomes.append({"name": topic.name, "error_code": int(code), "error_message": problem})
    return {"topics": outcomes}


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every topic."""
    return {"topics": [{"name": t.name, "error_code": error_code} for t in request.message.topics]}


def _create(
    state: ClusterState, topic: Any, *, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    replication = 1 if topic.replication_factor == _DEFAULT else topic.replication_factor
    alive = len(state.alive_brokers())
    if not is_valid_topic_name(topic.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {topic.name!r}"
    if topic.name in state.topics:
        return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
    if topic.num_partitions == 0 or topic.num_partitions < _DEFAULT:
        return ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
    if not 1 <= replication <= alive:
        return (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication} time(s): {alive} broker(s) are alive",
        )
    if validate_only:
        return ErrorCode.NONE, None
    configs = {config.name: config.value for config in topic.configs}
    state.create_topic(
        topic.name,
        None if topic.num_partitions == _DEFAULT else topic.num_partitions,
        replication,
        assignments=[list(assigned.broker_ids) for assigned in topic.assignments] or None,
        max_message_bytes=int(configs.get("max.message.bytes") or DEFAULT_MAX_MESSAGE_BYTES),
        min_insync_replicas=int(configs.get("min.insync.replicas") or 1),
    )
    return ErrorCode.NONE, None
