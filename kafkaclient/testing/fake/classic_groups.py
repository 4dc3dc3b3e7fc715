"""The group coordinator of the fake cluster: members of classic consumer groups.

Behavior
    Java's ``GroupCoordinator`` and ``ClassicGroup``. A member that joins, leaves, changes its
    subscription or misses its session timeout starts a rebalance. Every member then joins again
    within the longest rebalance timeout of the members, or is removed. The leader's SyncGroup
    request has the assignments. A member without a group instance id first gets MEMBER_ID_REQUIRED
    and its member id (KIP-394). A new member with the group instance id of another member takes its
    place and fences it (KIP-345).
    The brokers do not wait before the first rebalance (``group.initial.rebalance.delay.ms=0``).
    Differences from Kafka: a static member that comes back always causes a rebalance, and a group
    has members of one protocol only (:mod:`~kafkaclient.testing.fake.consumer_groups`: KIP-848).

The methods return the fields of responses; a future of fields if the answer depends on other
members.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.log import RefusedError

Fields: TypeAlias = dict[str, Any]
_Answer: TypeAlias = "Fields | asyncio.Future[Fields]"


class GroupState(Enum):
    """The states of Java's ``ClassicGroupState``, without Dead."""

    EMPTY = "Empty"
    JOINING = "PreparingRebalance"
    SYNCING = "CompletingRebalance"
    STABLE = "Stable"


class Joining(NamedTuple):
    """A request to join. ``member_id`` is empty for a new member; ``needs_id``: a new member must
    be given its id before it joins (JoinGroup from version 4 on)."""

    member_id: str
    instance_id: str | None
    client_id: str
    protocol_type: str
    protocols: dict[str, bytes]
    """Name of the assignor -> the member's metadata; the preferred assignor first."""
    session_timeout_s: float
    rebalance_timeout_s: float
    needs_id: bool


@dataclass(slots=True, eq=False)
class GroupMember:
    """A member of a group. ``joining`` and ``syncing`` are its requests that wait for others."""

    member_id: str
    wish: Joining
    assignment: bytes = b""
    joining: asyncio.Future[Fields] | None = None
    syncing: asyncio.Future[Fields] | None = None
    session: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """A group, its members in the order in which they joined, and its latest generation."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, GroupMember] = field(default_factory=dict)
    promised: set[str] = field(default_factory=set)
    """The member ids given to clients that have not joined with them yet."""
    deadline: asyncio.TimerHandle | None = None

    def static_member(self, instance_id: str | None) -> GroupMember | None:
        """The member with this group instance id."""
        found = (m for m in self.members.values() if m.wish.instance_id == instance_id)
        return None if instance_id is None else next(found, None)

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> GroupMember:
        """The member. Refuses a client that is not a member in the current generation."""
        static = self.static_member(instance_id)
        if static is not None and static.member_id != member_id:
            raise RefusedError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION)
        return self.members[member_id]


class ClassicGroupCoordinator:
    """The consumer groups of a cluster. Timeouts use the timers of the running event loop."""

    def __init__(self) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self._numbers = count(1)

    def join(self, group_id: str, wish: Joining) -> _Answer:
        group = self.groups.setdefault(group_id, ClassicGroup(group_id))
        static, member_id = group.static_member(wish.instance_id), wish.member_id

        def refuse(code: ErrorCode) -> RefusedError:
            return RefusedError(code, member_id=member_id)

        if not wish.protocols or not _compatible(group, wish):
            raise refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not member_id:
            member_id = f"{wish.instance_id or wish.client_id or 'member'}-{next(self._numbers)}"
            if wish.needs_id and wish.instance_id is None:
                group.promised.add(member_id)
                raise refuse(ErrorCode.MEMBER_ID_REQUIRED)
            if static is not None:
                self._remove(group, static, ErrorCode.FENCED_INSTANCE_ID)
        elif static is not None and static.member_id != member_id:
            raise refuse(ErrorCode.FENCED_INSTANCE_ID)
        elif member_id not in group.members and member_id not in group.promised:
            raise refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        group.promised.discard(member_id)
        return self._admit(group, member_id, wish)

    def _admit(self, group: ClassicGroup, member_id: str, wish: Joining) -> _Answer:
        member = group.members.get(member_id)
        changed = member is None or member.wish.protocols != wish.protocols
        if member is None:
            member = group.members[member_id] = GroupMember(member_id, wish)
        member.wish = wish
        self._heard_of(group, member)
        repeated = group.state is GroupState.SYNCING or (
            group.state is GroupState.STABLE and member_id != group.leader
        )
        if not changed and repeated:
            return _joined(group, member)
        _fail(member.joining, ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id)
        member.joining = asyncio.get_running_loop().create_future()
        joining = member.joining
        self._rebalance(group)
        return joining

    def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: dict[str, bytes],
    ) -> _Answer:
        group = self._known(group_id)
        member = group.check_member(member_id, instance_id, generation)
        if group.state is GroupState.JOINING:
            raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._heard_of(group, member)
        if group.state is GroupState.STABLE:
            return _synced(group, member)
        syncing = member.syncing = asyncio.get_running_loop().create_future()
        if member_id == group.leader:
            group.state = GroupState.STABLE
            for each in group.members.values():
                each.assignment = assignments.get(each.member_id, b"")
                _answer(each.syncing, _synced(group, each))
                each.syncing = None
        return syncing

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        group = self._known(group_id)
        self._heard_of(group, group.check_member(member_id, instance_id, generation))
        if group.state is GroupState.JOINING:
            raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        group = self._known(group_id)
        member = group.static_member(instance_id) or group.members.get(member_id)
        if member is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_id and member.member_id != member_id:
            raise RefusedError(ErrorCode.FENCED_INSTANCE_ID)
        self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._rebalance(group)

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Refuse a client that may not commit offsets. Without a generation any client may, as long
        as the group has no members."""
        group = self.groups.get(group_id)
        if group is not None and group.members:
            self._heard_of(group, group.check_member(member_id, instance_id, generation))
            if group.state is GroupState.SYNCING:
                raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)
        elif generation >= 0:
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION)

    def _known(self, group_id: str) -> ClassicGroup:
        if group_id not in self.groups:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self.groups[group_id]

    def forget_members(self) -> None:
        """Remove all members: their connections and the event loop's timers have ended."""
        for group in self.groups.values():
            for member in list(group.members.values()):
                self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
            if group.deadline is not None:
                group.deadline.cancel()
        self.groups.clear()

    # --- rebalances ---------------------------------------------------------------------------

    def _rebalance(self, group: ClassicGroup) -> None:
        """Wait until all members have joined; answer them if they have."""
        if group.state is not GroupState.JOINING:
            group.state = GroupState.JOINING
            for member in group.members.values():
                _fail(member.syncing, ErrorCode.REBALANCE_IN_PROGRESS)
                member.syncing = None
        if all(member.joining for member in group.members.values()):
            self._complete(group)
        elif group.deadline is None:
            longest = max(m.wish.rebalance_timeout_s for m in group.members.values())
            loop = asyncio.get_running_loop()
            group.deadline = loop.call_later(longest, self._complete, group)

    def _complete(self, group: ClassicGroup) -> None:
        """Begin the next generation with the members that have joined."""
        if group.deadline is not None:
            group.deadline.cancel()
            group.deadline = None
        for member in [m for m in group.members.values() if m.joining is None]:
            self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.generation += 1
        if not group.members:
            group.state, group.protocol, group.leader = GroupState.EMPTY, "", ""
            return
        group.state = GroupState.SYNCING
        group.protocol_type = next(iter(group.members.values())).wish.protocol_type
        group.protocol = _elected(group)
        if group.leader not in group.members:
            group.leader = next(iter(group.members))
        for member in group.members.values():
            joining, member.joining = member.joining, None
            _answer(joining, _joined(group, member))
            self._heard_of(group, member)

    def _heard_of(self, group: ClassicGroup, member: GroupMember) -> None:
        """Begin the member's session timeout again."""
        if member.session is not None:
            member.session.cancel()
        loop = asyncio.get_running_loop()
        timeout_s = member.wish.session_timeout_s
        member.session = loop.call_later(timeout_s, self._session_ended, group, member)

    def _session_ended(self, group: ClassicGroup, member: GroupMember) -> None:
        if member.joining is not None or member.syncing is not None:
            self._heard_of(group, member)  # the member waits for the others
            return
        self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._rebalance(group)

    def _remove(self, group: ClassicGroup, member: GroupMember, why: ErrorCode) -> None:
        del group.members[member.member_id]
        if member.session is not None:
            member.session.cancel()
        _fail(member.joining, why, member_id=member.member_id)
        _fail(member.syncing, why)


def _compatible(group: ClassicGroup, wish: Joining) -> bool:
    """Whether the group has an assignor that the new member and all other members know."""
    others = [m.wish for m in group.members.values() if m.member_id != wish.member_id]
    return all(other.protocol_type == wish.protocol_type for other in others) and bool(
        set(wish.protocols).intersection(*(other.protocols for other in others))
    )


def _elected(group: ClassicGroup) -> str:
    """The assignor that most members prefer among those that all members know."""
    wishes = [member.wish.protocols for member in group.members.values()]
    known = set(wishes[0]).intersection(*wishes)
    votes = Counter(next(name for name in wish if name in known) for wish in wishes)
    return votes.most_common(1)[0][0]


def _answer(waiting: asyncio.Future[Fields] | None, fields: Fields) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(fields)


def _fail(waiting: asyncio.Future[Fields] | None, error_code: ErrorCode, **fields: Any) -> None:
    _answer(waiting, {"error_code": error_code, **fields})


def _joined(group: ClassicGroup, member: GroupMember) -> Fields:
    """The generation; for the leader also the members with their metadata."""
    leads = member.member_id == group.leader
    return {
        "generation_id": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "leader": group.leader,
        "member_id": member.member_id,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.wish.instance_id,
                "metadata": each.wish.protocols[group.protocol],
            }
            for each in group.members.values()
            if leads
        ],
    }


def _synced(group: ClassicGroup, member: GroupMember) -> Fields:
    return {
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "assignment": member.assignment,
    }
