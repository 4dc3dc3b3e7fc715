"""The APIs that create, extend, move and delete topics. Changes take effect at once everywhere.

CreateTopics (19), versions 2 to 7
    Any broker answers. -1 stands for the cluster's defaults, which the answer contains. A manual
    assignment must not be combined with numbers. The configurations ``max.message.bytes`` and
    ``min.insync.replicas`` are in force, others are only stored. As in Kafka, brokers that are down
    count for the replication factor, and cordoned brokers only get replicas of a manual assignment.

CreatePartitions (37), versions 0 to 3
    Any broker answers. A manual assignment must list the replicas of the new partitions only, each
    with as many different brokers as the other partitions have.

DeleteTopics (20), versions 1 to 6, by name
    Any broker answers; a topic that does not exist gets UNKNOWN_TOPIC_OR_PARTITION. The fake does
    not implement topic ids, which version 6 allows.

AlterPartitionReassignments (45) and ListPartitionReassignments (46), version 0 (KIP-455)
    Another order of the same replicas takes effect at once. A reassignment puts the new replicas
    before the replicas to remove, and is ongoing until ``FakeCluster.finish_reassignments``. null
    instead of replicas cancels it: the earlier replicas stay, in their current order. To cancel
    without an ongoing reassignment gets NO_REASSIGNMENT_IN_PROGRESS. Each partition has its own
    outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.apis.api import Api, by_partition
from kafkaclient.testing.fake.log import DEFAULT_MAX_MESSAGE_BYTES, ErrorCode, is_valid_topic_name
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState

_DEFAULT = -1
_FIRST_DELETION_WITH_IDS = 6


def _same_error(request: Request, error_code: int) -> list[Fields]:
    """The same error for every topic."""
    return [{"name": topic.name, "error_code": error_code} for topic in request.message.topics]


def _create_topics(state: ClusterState, request: Request) -> Fields:
    outcomes = []
    for topic in request.message.topics:
        code, problem = _create(state, topic, validate_only=request.message.validate_only)
        outcome = {"name": topic.name, "error_code": code, "error_message": problem}
        if code is ErrorCode.NONE:
            outcome |= _numbers(state, topic)
        outcomes.append(outcome)
    return {"topics": outcomes}


def _create(
    state: ClusterState, topic: Any, *, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    code, problem = _problem(state, topic)
    if topic.name in state.topics:
        code, problem = ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
    if code is ErrorCode.NONE and not validate_only:
        numbers = _numbers(state, topic)
        configs = {config.name: config.value for config in topic.configs}
        created = state.create_topic(
            topic.name,
            numbers["num_partitions"],
            numbers["replication_factor"],
            assignments=[list(assigned.broker_ids) for assigned in topic.assignments] or None,
            max_message_bytes=int(configs.get("max.message.bytes") or DEFAULT_MAX_MESSAGE_BYTES),
            min_insync_replicas=int(configs.get("min.insync.replicas") or 1),
        )
        created.configs.update(configs)
    return code, problem


def _problem(state: ClusterState, topic: Any) -> tuple[ErrorCode, str | None]:
    if not is_valid_topic_name(topic.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {topic.name!r}"
    if topic.assignments:
        return _problem_with_assignment(state, topic)
    replication = 1 if topic.replication_factor == _DEFAULT else topic.replication_factor
    usable = sum(not broker.cordoned for broker in state.brokers.values())
    if topic.num_partitions == 0 or topic.num_partitions < _DEFAULT:
        return ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
    if not 1 <= replication <= usable:
        problem = f"{replication} replicas: {usable} broker(s) are registered and not cordoned."
        return ErrorCode.INVALID_REPLICATION_FACTOR, problem
    return ErrorCode.NONE, None


def _problem_with_assignment(state: ClusterState, topic: Any) -> tuple[ErrorCode, str | None]:
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        return ErrorCode.INVALID_REQUEST, "A manual partition assignment allows no numbers."
    assignments = [list(assigned.broker_ids) for assigned in topic.assignments]
    indexes = [assigned.partition_index for assigned in topic.assignments]
    factor = len(assignments[0])
    if indexes != list(range(len(indexes))) or _not_brokers(state, assignments, factor):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{indexes}: {assignments}"
    return ErrorCode.NONE, None


def _not_brokers(state: ClusterState, assignments: list[list[int]], factor: int) -> bool:
    """Whether any partition's replicas are not ``factor`` different brokers."""
    return any(
        not len(each) == len(set(each)) == factor or set(each) - set(state.brokers)
        for each in assignments
    )


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


def _create_partitions(state: ClusterState, request: Request) -> Fields:
    outcomes = []
    for requested in request.message.topics:
        code, problem = _extend(state, requested, validate_only=request.message.validate_only)
        outcomes.append({"name": requested.name, "error_code": code, "error_message": problem})
    return {"results": outcomes}


def _extend(
    state: ClusterState, requested: Any, *, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    topic = state.topics.get(requested.name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    has = len(topic.partitions)
    if requested.count <= has:
        return (
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {requested.name} currently has {has} partition(s); "
            f"{requested.count} would not be an increase.",
        )
    assignments = [list(each.broker_ids) for each in requested.assignments or ()]
    if requested.assignments is not None:
        factor = len(topic.partitions[0].replicas)
        if len(assignments) != requested.count - has:
            return (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{requested.count - has} partitions are added, {len(assignments)} are assigned.",
            )
        if _not_brokers(state, assignments, factor):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Not {factor} brokers: {assignments}"
    if not validate_only:
        if assignments:
            state.add_partitions(topic, assignments)
        else:
            state.grow_topic(topic, requested.count)
    return ErrorCode.NONE, None


def _delete_topics(state: ClusterState, request: Request) -> Fields:
    outcomes = []
    for name in _names(request):
        known = state.topics.pop(name, None)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.NONE
        outcomes.append({"name": name, "error_code": code})
    return {"responses": outcomes}


def _no_deletion(request: Request, error_code: int) -> Fields:
    return {"responses": [{"name": name, "error_code": error_code} for name in _names(request)]}


def _names(request: Request) -> list[str]:
    if request.version >= _FIRST_DELETION_WITH_IDS:
        return [topic.name for topic in request.message.topics]
    return list(request.message.topic_names)


def _alter_reassignments(state: ClusterState, request: Request) -> Fields:
    def outcome(topic: Any, requested: Any) -> Fields:
        return {
            "partition_index": requested.partition_index,
            "error_code": _move(state, topic.name, requested),
            "error_message": None,
        }

    return {"error_message": None, "responses": by_partition(request.message.topics, outcome)}


def _move(state: ClusterState, topic: str, requested: Any) -> ErrorCode:
    partition = state.partition(topic, requested.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    before = partition.moving_from or list(partition.replicas)
    if requested.replicas is None:
        if not partition.moving_to:
            return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        partition.replicas = [node for node in partition.replicas if node in before]
        partition.moving_to, partition.moving_from, partition.copied = [], [], {}
        return ErrorCode.NONE
    wanted = list(requested.replicas)
    if not wanted or _not_brokers(state, [wanted], len(wanted)):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not partition.moving_to and set(wanted) == set(before):
        partition.replicas = wanted
        return ErrorCode.NONE
    partition.moving_to, partition.moving_from = wanted, before
    partition.replicas = [*wanted, *sorted(set(before) - set(wanted))]
    return ErrorCode.NONE


def _list_reassignments(state: ClusterState, _: Request) -> Fields:
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


APIS = (
    Api(
        ApiKey.CREATE_TOPICS,
        (2, 7),
        _create_topics,
        lambda request, code: {"topics": _same_error(request, code)},
    ),
    Api(
        ApiKey.CREATE_PARTITIONS,
        (0, 3),
        _create_partitions,
        lambda request, code: {"results": _same_error(request, code)},
    ),
    Api(ApiKey.DELETE_TOPICS, (1, 6), _delete_topics, _no_deletion),
    Api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        (0, 0),
        _alter_reassignments,
        lambda _, code: {"error_code": code, "error_message": None},
    ),
    Api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (0, 0),
        _list_reassignments,
        lambda _, code: {"error_code": code, "error_message": None},
    ),
)
