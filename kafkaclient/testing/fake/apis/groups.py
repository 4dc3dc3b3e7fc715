"""The APIs of group coordinators: committed offsets, and members of classic consumer groups.

FindCoordinator (10), versions 0 to 5
    The coordinator of a group or a transactional id. Any broker answers. The coordinator is the
    broker that a test has chosen, else a live broker by the hash of the key. Without a live broker
    the answer is COORDINATOR_NOT_AVAILABLE. From 4 on a request may have several keys (KIP-699).

OffsetCommit (8), versions 2 to 10
    Sets the committed offsets of a group. Only the group's coordinator answers. If the group has
    members, the request must be by one of them and in the current generation; without members any
    client may commit. Unknown partitions get UNKNOWN_TOPIC_OR_PARTITION. Version 10 names topics by
    id; unknown ones get UNKNOWN_TOPIC_ID.

OffsetFetch (9), versions 1 to 10
    The committed offsets of a group. Only the group's coordinator answers, for the named
    partitions, or without names for all partitions that have one. With ``require_stable``, from
    version 7 on, a partition with a pending offset in an open transaction gets
    UNSTABLE_OFFSET_COMMIT (KIP-447). Several groups need version 8. Version 10 names topics by id.

TxnOffsetCommit (28), versions 0 to 5
    Adds offsets of a group to a transaction. Only the group's coordinator answers. Before version 5
    the group must be part of the transaction; from 5 on this request adds it (KIP-890). A member
    that is not in the group's current generation is refused (KIP-447). A test can set the
    generation of a group without members.

Only the group's coordinator answers the following requests. The rules are those of
:mod:`~kafkaclient.testing.fake.classic_groups` and, for KIP-848, of
:mod:`~kafkaclient.testing.fake.consumer_groups`.

JoinGroup (11), versions 2 to 9
    Waits until all members have joined. From version 4 on a new member without a group instance id
    gets MEMBER_ID_REQUIRED first.

SyncGroup (14), versions 0 to 5
    Waits for the leader's assignments.

Heartbeat (12), versions 0 to 4

LeaveGroup (13), versions 0 to 5
    From version 3 on a request may have several members.

ConsumerGroupHeartbeat (68), versions 0 and 1
    Joins, stays in or leaves a KIP-848 group. A group with classic members gets GROUP_ID_NOT_FOUND.

DescribeGroups (15), versions 0 to 6
    A group without members and offsets is Dead; from version 6 on it gets GROUP_ID_NOT_FOUND.

ListGroups (16), versions 0 to 5
    The groups that a broker coordinates, with members or committed offsets.

DeleteGroups (42), versions 0 to 2
    Deletes a group's committed offsets. A group with members gets NON_EMPTY_GROUP.

OffsetDelete (47), version 0
    Deletes committed offsets. A group with members gets NON_EMPTY_GROUP: their topics do not count.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.apis.api import (
    PARTITIONS,
    TOPIC_PARTITIONS,
    Api,
    Parts,
    each,
    topics,
)
from kafkaclient.testing.fake.classic_groups import ClassicGroup, GroupState, Joining
from kafkaclient.testing.fake.consumer_groups import HEARTBEAT_MS
from kafkaclient.testing.fake.log import RefusedError
from kafkaclient.testing.fake.transactions import Committed
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState


_FIRST_FIND_BATCHED = 4
_FIRST_FETCH_OF_GROUPS = 8
_FIRST_COMMIT_OF_V2 = 5
_FIRST_COMMIT_WITH_GENERATION = 3
_NO_GENERATION = -1

_COORDINATORS = Parts(
    "coordinator_keys", "coordinators", {"key": "key"}, failed={"node_id": -1, "port": -1}
)
_FIRST_WITH_TOPIC_IDS = 10

_BY_NAME_OR_ID = {"name": "name", "topic_id": "topic_id"}
_COMMITTED = Parts("topics", "topics", _BY_NAME_OR_ID, PARTITIONS)
_FETCHED_PARTITIONS = Parts(
    "partition_indexes",
    "partitions",
    {"partition_index": "partition_index"},
    failed={"committed_offset": -1},
)
_FETCHED = topics("topics", "topics", _FETCHED_PARTITIONS)
_FETCHED_GROUPS = Parts(
    "groups",
    "groups",
    {"group_id": "group_id"},
    Parts("topics", "topics", _BY_NAME_OR_ID, _FETCHED_PARTITIONS),
)


def _find_coordinator(state: ClusterState, request: Request) -> Fields:
    def found(key: str) -> Fields:
        node_id = state.transactions.node_of(key)
        if node_id < 0:
            raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        broker = state.brokers[node_id]
        return {"node_id": node_id, "host": broker.host, "port": broker.port}

    if request.version < _FIRST_FIND_BATCHED:
        return found(request.message.key)
    return _COORDINATORS.answer(request.message, found)


def _no_coordinator(request: Request, error: Fields) -> Fields:
    fields = {**_COORDINATORS.failed, **error}
    if request.version < _FIRST_FIND_BATCHED:
        return fields
    return _COORDINATORS.answer(request.message, lambda _: fields)


def _offset_commit(state: ClusterState, request: Request) -> Fields:
    message, coordinator = request.message, state.transactions
    group, generation = message.group_id, message.generation_id_or_member_epoch
    coordinator.check_coordinator(group, request.broker)
    _check_member(state, group, message.member_id, message.group_instance_id, generation)

    def commit(topic: Any, p: Any) -> Fields:
        name = _name_of(state, request, topic)
        state.partition(name, p.partition_index)
        committed = Committed(p.committed_offset, p.committed_metadata or "")
        coordinator.committed[group, name, p.partition_index] = committed
        return {}

    return _COMMITTED.answer(message, commit)


def _name_of(state: ClusterState, request: Request, topic: Any) -> str:
    by_id = request.version >= _FIRST_WITH_TOPIC_IDS
    return state.name_of(topic) if by_id else str(topic.name)


def _check_member(
    state: ClusterState, group: str, member_id: str, instance_id: str | None, generation: int
) -> None:
    """Refuse offsets of a client that may not commit offsets of the group."""
    current = state.transactions.generations.get(group)
    if current is None:
        if not state.consumer_groups.check_commit(group, member_id, generation):
            state.groups.check_commit(group, member_id, instance_id, generation)
    elif generation not in (current, _NO_GENERATION):
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION)


def _offset_fetch(state: ClusterState, request: Request) -> Fields:
    coordinator, stable = state.transactions, request.message.require_stable

    def offset(group: Any, topic: Any, partition: int) -> Fields:
        coordinator.check_coordinator(group.group_id, request.broker)
        name = _name_of(state, request, topic)
        if stable and coordinator.pending(group.group_id, name, partition):
            raise RefusedError(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = coordinator.committed.get((group.group_id, name, partition))
        if found is None:
            return {"committed_offset": -1}
        return {"committed_offset": found.offset, "metadata": found.metadata}

    return _each_offset(request, offset, coordinator.committed)


def _each_offset(
    request: Request,
    offset: Callable[[Any, Any, int], Fields],
    committed: Iterable[tuple[str, str, int]] = (),
) -> Fields:
    """The offsets of the partitions that a group names, or of all that it has committed."""

    def with_topics(group: Any) -> Any:
        if group.topics is not None:
            return group
        known: dict[str, list[int]] = {}
        for name, topic, partition in committed:
            if name == group.group_id:
                known.setdefault(topic, []).append(partition)
        all_topics = [
            SimpleNamespace(name=topic, topic_id=None, partition_indexes=numbers)
            for topic, numbers in known.items()
        ]
        return SimpleNamespace(group_id=group.group_id, topics=all_topics)

    message = request.message
    if request.version < _FIRST_FETCH_OF_GROUPS:
        group = with_topics(message)
        return _FETCHED.answer(group, offset, group)
    groups = SimpleNamespace(groups=[with_topics(group) for group in message.groups])
    return _FETCHED_GROUPS.answer(groups, offset)


def _txn_offset_commit(state: ClusterState, request: Request) -> Fields:
    message, coordinator = request.message, state.transactions
    group, name = message.group_id, message.transactional_id
    coordinator.check_coordinator(group, request.broker)
    known = coordinator.check(name, message.producer_id, message.producer_epoch)
    if request.version < _FIRST_COMMIT_OF_V2 and group not in known.groups:
        raise RefusedError(ErrorCode.INVALID_TXN_STATE)
    if (
        request.version >= _FIRST_COMMIT_WITH_GENERATION
        and message.generation_id != _NO_GENERATION
        # else a member that a test has made up
        and (group in coordinator.generations or group in state.groups.groups)
    ):
        _check_member(
            state, group, message.member_id, message.group_instance_id, message.generation_id
        )
    coordinator.add(name, group=group)

    def add(topic: Any, p: Any) -> Fields:
        committed = Committed(p.committed_offset, p.committed_metadata or "")
        known.offsets[group, topic.name, p.partition_index] = committed
        return {}

    return TOPIC_PARTITIONS.answer(message, add)


_FIRST_JOIN_WITH_ID = 4
_FIRST_LEAVE_OF_MANY = 3
_FIRST_DESCRIBE_NOT_FOUND = 6


_LEAVING = Parts(
    "members",
    "members",
    {"member_id": "member_id", "group_instance_id": "group_instance_id"},
)
_DESCRIBED = Parts("groups", "groups", {"group_id": "group_id"})
_DELETED = Parts("groups_names", "results", {"group_id": "group_id"})


def _join(state: ClusterState, request: Request) -> Fields | asyncio.Future[Fields]:
    message = request.message
    if not message.group_id:
        raise RefusedError(ErrorCode.INVALID_GROUP_ID)
    state.transactions.check_coordinator(message.group_id, request.broker)
    wish = Joining(
        message.member_id,
        message.group_instance_id,
        request.client_id or "",
        message.protocol_type,
        {protocol.name: bytes(protocol.metadata) for protocol in message.protocols},
        message.session_timeout_ms / 1000,
        message.rebalance_timeout_ms / 1000,
        request.version >= _FIRST_JOIN_WITH_ID,
    )
    return state.groups.join(message.group_id, wish)


def _sync(state: ClusterState, request: Request) -> Fields | asyncio.Future[Fields]:
    message = request.message
    state.transactions.check_coordinator(message.group_id, request.broker)
    return state.groups.sync(
        message.group_id,
        message.member_id,
        message.group_instance_id,
        message.generation_id,
        {each.member_id: bytes(each.assignment) for each in message.assignments},
    )


def _heartbeat(state: ClusterState, request: Request) -> Fields:
    message = request.message
    state.transactions.check_coordinator(message.group_id, request.broker)
    state.groups.heartbeat(
        message.group_id, message.member_id, message.group_instance_id, message.generation_id
    )
    return {}


def _consumer_heartbeat(state: ClusterState, request: Request) -> Fields:
    message = request.message
    state.transactions.check_coordinator(message.group_id, request.broker)
    classic = state.groups.groups.get(message.group_id)
    if classic is not None and classic.members:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND)
    ids = {topic.topic_id: name for name, topic in state.topics.items()}
    message.owned = {
        TopicPartition(ids.get(topic_id, ""), number)
        for topic_id, numbers in message.topic_partitions.items()
        for number in numbers
    }
    counts = {name: len(topic.partitions) for name, topic in state.topics.items()}
    member = state.consumer_groups.heartbeat(message, counts)
    if member is None:
        return {"member_epoch": message.member_epoch}
    assignment: dict[Any, list[int]] = {}
    for topic, number in sorted(member.assigned):
        if topic in state.topics:
            assignment.setdefault(state.topics[topic].topic_id, []).append(number)
    return {
        "member_id": member.member_id,
        "member_epoch": member.epoch,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "assignment": assignment,
    }


def _leave(state: ClusterState, request: Request) -> Fields:
    message = request.message
    state.transactions.check_coordinator(message.group_id, request.broker)
    if request.version < _FIRST_LEAVE_OF_MANY:
        state.groups.leave(message.group_id, message.member_id, None)
        return {}

    def leave(member: Any) -> Fields:
        state.groups.leave(message.group_id, member.member_id, member.group_instance_id)
        return {}

    return _LEAVING.answer(message, leave)


def _describe(state: ClusterState, request: Request, name: str) -> Fields:
    state.transactions.check_coordinator(name, request.broker)
    if name not in _known(state):
        missing = request.version >= _FIRST_DESCRIBE_NOT_FOUND
        code = ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE
        return {"error_code": code, "group_state": "Dead"}
    group = state.groups.groups.get(name, ClassicGroup(name))
    stable = group.state is GroupState.STABLE
    return {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.wish.instance_id,
                "client_id": member.wish.client_id,
                "client_host": "/127.0.0.1",
                "member_metadata": member.wish.protocols[group.protocol] if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.values()
        ],
    }


def _known(state: ClusterState) -> dict[str, ClassicGroup]:
    """The groups with members or committed offsets."""
    groups = {name: group for name, group in state.groups.groups.items() if group.members}
    for name, _, _ in state.transactions.committed:
        groups.setdefault(name, state.groups.groups.get(name, ClassicGroup(name)))
    return groups


def _list(state: ClusterState, request: Request) -> Fields:
    states, types = request.message.states_filter or (), request.message.types_filter or ()
    return {
        "groups": [
            {
                "group_id": name,
                "protocol_type": group.protocol_type,
                "group_state": group.state.value,
                "group_type": "classic",
            }
            for name, group in _known(state).items()
            if state.transactions.node_of(name) == request.broker
            and (not states or group.state.value in states)
            and (not types or "classic" in types)
        ],
    }


def _delete(state: ClusterState, request: Request, name: str) -> Fields:
    _check_empty(state, request, name)
    committed = state.transactions.committed
    for key in [key for key in committed if key[0] == name]:
        del committed[key]
    return {}


def _delete_offsets(state: ClusterState, request: Request) -> Fields:
    name = request.message.group_id
    _check_empty(state, request, name)

    def delete(topic: Any, p: Any) -> Fields:
        state.transactions.committed.pop((name, topic.name, p.partition_index), None)
        return {}

    return TOPIC_PARTITIONS.answer(request.message, delete)


def _check_empty(state: ClusterState, request: Request, name: str) -> None:
    """Refuse a group that does not exist, or has members."""
    state.transactions.check_coordinator(name, request.broker)
    known = _known(state)
    if name not in known:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND)
    if known[name].members:
        raise RefusedError(ErrorCode.NON_EMPTY_GROUP)


APIS = (
    Api(ApiKey.FIND_COORDINATOR, (0, 5), _find_coordinator, refused=_no_coordinator),
    Api(ApiKey.OFFSET_COMMIT, (2, 10), _offset_commit, _COMMITTED),
    Api(
        ApiKey.OFFSET_FETCH,
        (1, 10),
        _offset_fetch,
        refused=lambda request, error: _each_offset(
            request, lambda *_: {"committed_offset": -1, **error}
        ),
    ),
    Api(ApiKey.TXN_OFFSET_COMMIT, (0, 5), _txn_offset_commit, TOPIC_PARTITIONS),
    Api(ApiKey.JOIN_GROUP, (2, 9), _join),
    Api(ApiKey.SYNC_GROUP, (0, 5), _sync),
    Api(ApiKey.HEARTBEAT, (0, 4), _heartbeat),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), _consumer_heartbeat),
    Api(ApiKey.LEAVE_GROUP, (0, 5), _leave),
    each(ApiKey.DESCRIBE_GROUPS, (0, 6), _DESCRIBED, _describe),
    Api(ApiKey.LIST_GROUPS, (0, 5), _list),
    each(ApiKey.DELETE_GROUPS, (0, 2), _DELETED, _delete),
    Api(ApiKey.OFFSET_DELETE, (0, 0), _delete_offsets),
)
