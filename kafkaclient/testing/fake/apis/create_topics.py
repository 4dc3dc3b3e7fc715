"""CreateTopics (19): creates topics, at once on all brokers.

Behavior
    Any broker answers. -1 stands for the cluster's defaults, which the answer contains. A manual
    assignment must not be combined with numbers. The configurations ``max.message.bytes`` and
    ``min.insync.replicas`` are in force, others are only stored. As in Kafka, ``validate_only``
    does not check whether the topic exists.

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
        outcome = {"name": topic.name, "error_code": int(code), "error_message": problem}
        if code is ErrorCode.NONE:
            outcome |= _numbers(state, topic)
        outcomes.append(outcome)
    return {"topics": outcomes}


def refuse(request: Request, error_code: int) -> dict[str, Any]:
    """The same error for every topic."""
    return {"topics": [{"name": t.name, "error_code": error_code} for t in request.message.topics]}


def _create(
    state: ClusterState, topic: Any, *, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    code, problem = _problem(state, topic)
    if topic.name in state.topics and not validate_only:
        code, problem = ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
    if code is ErrorCode.NONE and not validate_only:
        _do_create(state, topic)
    return code, problem


def _problem(state: ClusterState, topic: Any) -> tuple[ErrorCode, str | None]:
    if not is_valid_topic_name(topic.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {topic.name!r}"
    if topic.assignments:
        return _problem_with_assignment(state, topic)
    replication = 1 if topic.replication_factor == _DEFAULT else topic.replication_factor
    alive = len(state.alive_brokers())
    if topic.num_partitions == 0 or topic.num_partitions < _DEFAULT:
        return ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
    if not 1 <= replication <= alive:
        return (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication} time(s): {alive} broker(s) are alive",
        )
    return ErrorCode.NONE, None


def _problem_with_assignment(state: ClusterState, topic: Any) -> tuple[ErrorCode, str | None]:
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        return ErrorCode.INVALID_REQUEST, "A manual partition assignment allows no numbers."
    assignments = [list(assigned.broker_ids) for assigned in topic.assignments]
    indexes = [assigned.partition_index for assigned in topic.assignments]
    factor = len(assignments[0])
    if indexes != list(range(len(indexes))) or any(
        len(each) != factor or len(set(each)) != factor or set(each) - set(state.brokers)
        for each in assignments
    ):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{indexes}: {assignments}"
    return ErrorCode.NONE, None


def _numbers(state: ClusterState, topic: Any) -> dict[str, int]:
    """The numbers of partitions and replicas of the new topic."""
    if topic.assignments:
        replicas = len(topic.assignments[0].broker_ids)
        return {"num_partitions": len(topic.assignments), "replication_factor": replicas}
    partitions, factor = topic.num_partitions, topic.replication_factor
    return {
        "num_partitions": state.default_partitions if partitions == _DEFAULT else partitions,
        "replication_factor": 1 if factor == _DEFAULT else factor,
    }


def _do_create(state: ClusterState, topic: Any) -> None:
    configs = {config.name: config.value for config in topic.configs}
    replication = 1 if topic.replication_factor == _DEFAULT else topic.replication_factor
    created = state.create_topic(
        topic.name,
        None if topic.num_partitions == _DEFAULT else topic.num_partitions,
        replication,
        assignments=[list(assigned.broker_ids) for assigned in topic.assignments] or None,
        max_message_bytes=int(configs.get("max.message.bytes") or DEFAULT_MAX_MESSAGE_BYTES),
        min_insync_replicas=int(configs.get("min.insync.replicas") or 1),
    )
    created.configs.update(configs)
