"""The APIs of admin clients for topics and configurations. Changes take effect at once everywhere.

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

ElectLeaders (43), versions 1 and 2
    The first replica becomes the leader if it is in sync and up, else
    PREFERRED_LEADER_NOT_AVAILABLE. An unclean election, of a partition without a leader, takes the
    first replica that is up, else ELIGIBLE_LEADERS_NOT_AVAILABLE.

DescribeConfigs (32), versions 1 to 4, and IncrementalAlterConfigs (44), versions 0 and 1
    Topics and brokers have :data:`DEFAULTS` and the keys that were set. Topics refuse unknown keys.
    Brokers accept any key, but return only the name of an unknown key, not its value. A broker
    answers for itself and for the defaults of all brokers (the name ``""``). Another broker's id
    gets INVALID_REQUEST, and so does a key named twice. Appending an element that the list has
    changes nothing.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.apis.api import PARTITIONS, Api, Parts, each, topics
from kafkaclient.testing.fake.log import RefusedError, is_valid_topic_name
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState


_DEFAULT = -1
_FIRST_DELETION_WITH_IDS = 6


def _create(state: ClusterState, request: Request, topic: Any) -> Fields:
    if topic.name in state.topics:
        raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    _check(state, topic)
    numbers = _numbers(state, topic)
    if not request.message.validate_only:
        state.create_topic(
            topic.name,
            numbers["num_partitions"],
            numbers["replication_factor"],
            assignments=[list(assigned.broker_ids) for assigned in topic.assignments] or None,
            configs={config.name: config.value for config in topic.configs},
        )
    return {"error_message": None, **numbers}


def _check(state: ClusterState, topic: Any) -> None:
    if not is_valid_topic_name(topic.name):
        invalid = f"Topic name is invalid: {topic.name!r}"
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, invalid)
    if topic.assignments:
        _check_assignment(state, topic)
        return
    replication = 1 if topic.replication_factor == _DEFAULT else topic.replication_factor
    usable = sum(not broker.cordoned for broker in state.brokers.values())
    if topic.num_partitions == 0 or topic.num_partitions < _DEFAULT:
        too_few = "Number of partitions must be larger than 0."
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, too_few)
    if not 1 <= replication <= usable:
        problem = f"{replication} replicas: {usable} broker(s) are registered and not cordoned."
        raise RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)


def _check_assignment(state: ClusterState, topic: Any) -> None:
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        problem = "A manual partition assignment allows no numbers."
        raise RefusedError(ErrorCode.INVALID_REQUEST, problem)
    assignments = [list(assigned.broker_ids) for assigned in topic.assignments]
    indexes = [assigned.partition_index for assigned in topic.assignments]
    factor = len(assignments[0])
    if indexes != list(range(len(indexes))) or _not_brokers(state, assignments, factor):
        raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{indexes}: {assignments}")


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


def _extend(state: ClusterState, request: Request, requested: Any) -> Fields:
    topic = state.topics.get(requested.name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    has = len(topic.partitions)
    if requested.count <= has:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {requested.name} currently has {has} partition(s); "
            f"{requested.count} would not be an increase.",
        )
    assignments = [list(each.broker_ids) for each in requested.assignments or ()]
    if requested.assignments is not None:
        factor, added = len(topic.partitions[0].replicas), requested.count - has
        problem = None
        if len(assignments) != added:
            problem = f"{added} partitions are added, {len(assignments)} are assigned."
        elif _not_brokers(state, assignments, factor):
            problem = f"Not {factor} brokers: {assignments}"
        if problem is not None:
            raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    if not request.message.validate_only:
        if assignments:
            state.add_partitions(topic, assignments)
        else:
            state.grow_topic(topic, requested.count)
    return {}


def _delete_topics(state: ClusterState, request: Request) -> Fields:
    def delete(topic: Any) -> Fields:
        name = getattr(topic, "name", topic)
        if name not in state.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state.delete_topic(name)
        return {}

    return _each_deleted(request, delete)


def _each_deleted(request: Request, outcome: Callable[..., Fields]) -> Fields:
    by_id = request.version >= _FIRST_DELETION_WITH_IDS
    return topics("topics" if by_id else "topic_names", "responses").answer(
        request.message, outcome
    )


def _move(state: ClusterState, topic: Any, requested: Any) -> Fields:
    partition = state.partition(topic.name, requested.partition_index)
    before = partition.moving_from or list(partition.replicas)
    if requested.replicas is None:
        if not partition.moving_to:
            raise RefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        partition.replicas = [node for node in partition.replicas if node in before]
        partition.moving_to, partition.moving_from, partition.copied = [], [], {}
        return {}
    wanted = list(requested.replicas)
    if not wanted or _not_brokers(state, [wanted], len(wanted)):
        raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    if not partition.moving_to and set(wanted) == set(before):
        partition.replicas = wanted
    else:
        partition.moving_to, partition.moving_from = wanted, before
        partition.replicas = [*wanted, *sorted(set(before) - set(wanted))]
    return {}


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
    return {"topics": moving}


def _elect(state: ClusterState, request: Request) -> Fields:
    outcome = partial(_elect_one, state, request)
    if request.message.topic_partitions is not None:
        return _ELECTED.answer(request.message, outcome)
    everything = [
        SimpleNamespace(topic=topic.name, partitions=[each.index for each in topic.partitions])
        for topic in state.topics.values()
    ]
    answer = _ELECTED.answer(SimpleNamespace(topic_partitions=everything), outcome)
    for result in answer["replica_election_results"]:
        result["partition_result"] = [
            each
            for each in result["partition_result"]
            if each.get("error_code") != ErrorCode.ELECTION_NOT_NEEDED
        ]
    return answer


def _elect_one(state: ClusterState, request: Request, topic: Any, index: int) -> Fields:
    partition = state.partition(topic.topic, index)
    unclean = request.message.election_type == _UNCLEAN
    if partition.leader == partition.replicas[0] or (unclean and partition.leader >= 0):
        raise RefusedError(ErrorCode.ELECTION_NOT_NEEDED)
    up = [node for node in partition.replicas if state.is_alive(node)]
    if unclean:
        if not up:
            raise RefusedError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        partition.isr = [up[0]]
        partition.elect(up[0])
    else:
        preferred = partition.replicas[0]
        if preferred not in up or preferred not in partition.isr:
            raise RefusedError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        partition.elect(preferred)
    return {}


_UNCLEAN = 1
_ELECTED = Parts(
    "topic_partitions",
    "replica_election_results",
    {"topic": "topic"},
    Parts("partitions", "partition_result", {"partition_id": "partition_id"}),
)
_MOVED = topics("topics", "responses", PARTITIONS)

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_TOPIC_SOURCE, _BROKER_SOURCE, _ALL_BROKERS_SOURCE, _DEFAULT_SOURCE = 1, 2, 3, 5

DEFAULTS: Mapping[int, Mapping[str, str]] = {
    _TOPIC: {
        "cleanup.policy": "delete",
        "delete.retention.ms": "86400000",
        "follower.replication.throttled.replicas": "",
        "leader.replication.throttled.replicas": "",
        "max.message.bytes": "1048588",
        "min.insync.replicas": "1",
        "retention.ms": "604800000",
    },
    _BROKER: {"log.cleaner.threads": "1", "num.partitions": "1"},
}

_RATES = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Known keys of brokers without a default value."""


def _own(state: ClusterState, request: Request, resource: Any) -> dict[str, str]:
    """The resource's own configuration."""
    name = resource.resource_name
    if resource.resource_type == _TOPIC:
        if name not in state.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return state.topics[name].configs
    if name not in ("", str(request.broker)):
        problem = f"Unexpected broker id, expected {request.broker} or empty string, but received"
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{problem} {name}")
    return state.broker_configs.setdefault(name, {})


def _describe(state: ClusterState, request: Request, resource: Any) -> Fields:
    own, keys = _own(state, request, resource), resource.configuration_keys
    kind, name = resource.resource_type, resource.resource_name
    entries: dict[str, tuple[str, int]] = {}
    if kind == _TOPIC or name:
        defaults = DEFAULTS[kind]
        entries = {key: (value, _DEFAULT_SOURCE) for key, value in defaults.items()}
    everywhere = state.broker_configs.get("", {})
    shown = everywhere if kind == _BROKER else {k: v for k, v in everywhere.items() if k in entries}
    entries |= {key: (value, _ALL_BROKERS_SOURCE) for key, value in shown.items()}
    if kind == _TOPIC or name:
        source = _TOPIC_SOURCE if kind == _TOPIC else _BROKER_SOURCE
        entries |= {key: (value, source) for key, value in own.items()}
    configs = [
        {"name": key, "config_source": source, **_shown(kind, key, value)}
        for key, (value, source) in entries.items()
        if keys is None or key in keys
    ]
    return {"configs": configs}


def _shown(kind: int, key: str, value: str) -> Fields:
    hidden = key not in DEFAULTS[kind] and key not in _RATES
    return {"value": None if hidden else value, "read_only": hidden, "is_sensitive": hidden}


def _alter(state: ClusterState, request: Request, resource: Any) -> Fields:
    own = _own(state, request, resource)
    names = [change.name for change in resource.configs]
    if len(set(names)) < len(names):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    changed = dict(own)
    for change in resource.configs:
        known = change.name in DEFAULTS[_TOPIC]
        if change.config_operation == _DELETE:
            changed.pop(change.name, None)
        elif resource.resource_type == _TOPIC and not known:
            unknown = f"Unknown topic config name: {change.name}"
            raise RefusedError(ErrorCode.INVALID_CONFIG, unknown)
        elif change.config_operation == _SET:
            changed[change.name] = change.value
        else:
            old = [element for element in changed.get(change.name, "").split(",") if element]
            given = change.value.split(",")
            if change.config_operation == _APPEND:
                new = list(dict.fromkeys([*old, *given]))
            else:
                new = [element for element in old if element not in given]
            changed[change.name] = ",".join(new)
    if not request.message.validate_only:
        own.clear()
        own.update(changed)
    return {}


_IDENTITY = {"resource_type": "resource_type", "resource_name": "resource_name"}


APIS = (
    each(ApiKey.CREATE_TOPICS, (2, 7), topics("topics", "topics"), _create),
    each(ApiKey.CREATE_PARTITIONS, (0, 3), topics("topics", "results"), _extend),
    Api(
        ApiKey.DELETE_TOPICS,
        (1, 6),
        _delete_topics,
        refused=lambda request, error: _each_deleted(request, lambda _: error),
    ),
    Api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        (0, 0),
        lambda state, request: _MOVED.answer(request.message, partial(_move, state)),
    ),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), _list_reassignments),
    Api(ApiKey.ELECT_LEADERS, (1, 2), _elect),
    each(ApiKey.DESCRIBE_CONFIGS, (1, 4), Parts("resources", "results", _IDENTITY), _describe),
    each(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), Parts("resources", "responses", _IDENTITY), _alter
    ),
)
