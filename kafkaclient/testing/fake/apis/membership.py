"""The APIs of the members of classic consumer groups. Only the group's coordinator answers.

The rules are those of :mod:`~kafkaclient.testing.fake.consumer_groups`. The brokers offer no
ConsumerGroupHeartbeat (68, KIP-848).

JoinGroup (11), versions 2 to 9
    Waits until all members have joined. From version 4 on a new member without a group instance id
    gets MEMBER_ID_REQUIRED first.

SyncGroup (14), versions 0 to 5
    Waits for the leader's assignments.

Heartbeat (12), versions 0 to 4

LeaveGroup (13), versions 0 to 5
    From version 3 on a request may have several members.

DescribeGroups (15), versions 0 to 6
    A group without members and offsets is Dead; from version 6 on it gets GROUP_ID_NOT_FOUND.

ListGroups (16), versions 0 to 5
    The groups that a broker coordinates, with members or committed offsets.

DeleteGroups (42), versions 0 to 2
    Deletes a group's committed offsets. A group with members gets NON_EMPTY_GROUP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.apis.api import Api, Parts, each
from kafkaclient.testing.fake.consumer_groups import ConsumerGroup, GroupState, Joining
from kafkaclient.testing.fake.log import ErrorCode, RefusedError
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    import asyncio

    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState

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
    group = state.groups.groups.get(name, ConsumerGroup(name))
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


def _known(state: ClusterState) -> dict[str, ConsumerGroup]:
    """The groups with members or committed offsets."""
    groups = {name: group for name, group in state.groups.groups.items() if group.members}
    for name, _, _ in state.transactions.committed:
        groups.setdefault(name, state.groups.groups.get(name, ConsumerGroup(name)))
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
    state.transactions.check_coordinator(name, request.broker)
    known = _known(state)
    if name not in known:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND)
    if known[name].members:
        raise RefusedError(ErrorCode.NON_EMPTY_GROUP)
    committed = state.transactions.committed
    for key in [key for key in committed if key[0] == name]:
        del committed[key]
    return {}


APIS = (
    Api(ApiKey.JOIN_GROUP, (2, 9), _join),
    Api(ApiKey.SYNC_GROUP, (0, 5), _sync),
    Api(ApiKey.HEARTBEAT, (0, 4), _heartbeat),
    Api(ApiKey.LEAVE_GROUP, (0, 5), _leave),
    each(ApiKey.DESCRIBE_GROUPS, (0, 6), _DESCRIBED, _describe),
    Api(ApiKey.LIST_GROUPS, (0, 5), _list),
    each(ApiKey.DELETE_GROUPS, (0, 2), _DELETED, _delete),
)
