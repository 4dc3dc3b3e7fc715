"""The group coordinator of the fake cluster: members of KIP-848 groups.

Behavior
    Java's ``GroupMetadataManager`` with a uniform assignor. A member joins with epoch 0. Each
    change of the members, subscriptions or topics begins another epoch of the group, with other
    targets. A member that has partitions of other members' targets is asked to give them up. When
    its heartbeats have them no more, its epoch becomes the group's, and it gets what no other
    member has. A member that misses its session timeout is removed, and so is one that does not
    give up partitions within its rebalance timeout.
    Differences from Kafka: a heartbeat has all fields, as this package's member sends them; classic
    members cannot be in the same group; regular expressions are Python's.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.log import RefusedError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

SESSION_S = 45.0
HEARTBEAT_MS = 5000
_LEFT, _LEFT_STATIC = -1, -2


@dataclass(slots=True, eq=False)
class ConsumerGroupMember:
    """``assigned``: what the member may have; ``revoking``: what it is asked to give up."""

    member_id: str
    instance_id: str | None
    epoch: int = 0
    previous_epoch: int = 0
    topics: frozenset[str] = frozenset()
    regex: str = ""
    target: set[TopicPartition] = field(default_factory=set)
    assigned: set[TopicPartition] = field(default_factory=set)
    revoking: set[TopicPartition] = field(default_factory=set)
    has_left: bool = False
    """A static member that may return."""
    session: asyncio.TimerHandle | None = None
    rebalance: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A group, and the partitions that its members can have."""

    epoch: int = 0
    members: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def holds(self, member: ConsumerGroupMember) -> set[TopicPartition]:
        """What the other members have, or still give up."""
        others = (each for each in self.members.values() if each is not member)
        return {p for each in others for p in each.assigned | each.revoking}

    def retarget(self) -> None:
        """Begin another epoch, in which each member keeps what it can keep."""
        self.epoch += 1
        partitions = [
            TopicPartition(t, n) for t, count in self.counts.items() for n in range(count)
        ]
        before = {p: name for name, member in self.members.items() for p in member.target}
        for member in self.members.values():
            member.target = set()
        for stays in (True, False):
            for p in partitions:
                takers = [m for m in self.members.values() if p.topic in m.topics]
                if not takers or any(p in m.target for m in takers):
                    continue
                quota = -(-len(partitions) // len(takers))
                least = min(takers, key=lambda m: len(m.target))
                owner = self.members.get(before.get(p, ""), least)
                if stays and p in before and owner in takers and len(owner.target) < quota:
                    owner.target.add(p)
                elif not stays:
                    least.target.add(p)
        self._level()

    def _level(self) -> None:
        """Move partitions until no member has two more than another that could have them."""
        while True:
            for most in sorted(self.members.values(), key=lambda m: -len(m.target)):
                for p in sorted(most.target):
                    takers = [m for m in self.members.values() if p.topic in m.topics]
                    least = min(takers, key=lambda m: len(m.target))
                    if len(most.target) > len(least.target) + 1:
                        most.target.remove(p)
                        least.target.add(p)
                        break
                else:
                    continue
                break
            else:
                return


class ConsumerGroupCoordinator:
    """The KIP-848 groups of a cluster. Timeouts use the timers of the running event loop."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}

    def heartbeat(self, message: Any, counts: Mapping[str, int]) -> ConsumerGroupMember | None:
        """The member after its heartbeat; None if it has left. ``counts``: the partitions of all
        topics."""
        group = self.groups.setdefault(message.group_id, ConsumerGroup())
        if message.member_epoch in (_LEFT, _LEFT_STATIC):
            self._leave(group, message)
            return None
        member = self._member(group, message)
        self._heard_of(group, member)
        topics = frozenset(message.topics)
        if message.regex is not None:
            member.regex = message.regex
        if member.regex:
            topics |= {name for name in counts if re.fullmatch(member.regex, name)}
        counts = {name: count for name, count in counts.items() if name in topics} | {
            name: counts[name] for name in group.counts if name in counts
        }
        if topics != member.topics or counts != group.counts or member.epoch == 0:
            changed = topics != member.topics or counts != group.counts
            member.topics, group.counts = topics, counts
            if changed:
                group.retarget()
        self._reconcile(group, member, message)
        return member

    def _member(self, group: ConsumerGroup, message: Any) -> ConsumerGroupMember:
        member = group.members.get(message.member_id)
        if message.member_epoch == 0:
            if member is not None:
                return member
            instance_id = message.instance_id
            for known in list(group.members.values()):
                if instance_id is not None and known.instance_id == instance_id:
                    if not known.has_left:
                        raise RefusedError(ErrorCode.UNRELEASED_INSTANCE_ID)
                    del group.members[known.member_id]
                    member = group.members[message.member_id] = ConsumerGroupMember(
                        message.member_id, instance_id, topics=known.topics, target=known.target
                    )
                    _cancel(known)
                    return member
            member = ConsumerGroupMember(message.member_id, instance_id)
            group.members[message.member_id] = member
            return member
        if member is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        if message.member_epoch not in (member.epoch, member.previous_epoch):
            raise RefusedError(ErrorCode.FENCED_MEMBER_EPOCH)
        return member

    def _reconcile(self, group: ConsumerGroup, member: ConsumerGroupMember, message: Any) -> None:
        owned: Set[TopicPartition] = message.owned
        if message.member_epoch == 0:
            member.assigned, member.revoking = set(), set()
        member.revoking &= owned
        if not member.revoking:
            leaving = member.assigned - member.target
            member.assigned -= leaving
            member.revoking = leaving & owned
        if member.rebalance is not None:
            member.rebalance.cancel()
            member.rebalance = None
        if member.revoking:
            seconds = message.rebalance_timeout_ms / 1000
            loop = asyncio.get_running_loop()
            member.rebalance = loop.call_later(seconds, self._remove, group, member)
            return
        member.assigned |= member.target - group.holds(member)
        if member.epoch != group.epoch:
            member.previous_epoch, member.epoch = member.epoch, group.epoch

    def _leave(self, group: ConsumerGroup, message: Any) -> None:
        member = group.members.get(message.member_id)
        if member is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        if message.member_epoch == _LEFT_STATIC:
            member.has_left, member.assigned = True, set()
        else:
            self._remove(group, member)

    def check_commit(self, group_id: str, member_id: str, epoch: int) -> bool:
        """Refuse a client that may not commit. False: there is no such group with members."""
        group = self.groups.get(group_id)
        if group is None or not group.members:
            return False
        if member_id not in group.members:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch != group.members[member_id].epoch:
            raise RefusedError(ErrorCode.STALE_MEMBER_EPOCH)
        return True

    def forget_members(self) -> None:
        """Remove all members: their connections and the event loop's timers have ended."""
        for group in self.groups.values():
            for member in group.members.values():
                _cancel(member)
        self.groups.clear()

    def _heard_of(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        if member.session is not None:
            member.session.cancel()
        loop = asyncio.get_running_loop()
        member.session = loop.call_later(SESSION_S, self._remove, group, member)

    def _remove(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        _cancel(member)
        if group.members.pop(member.member_id, None) is not None:
            group.retarget()


def _cancel(member: ConsumerGroupMember) -> None:
    for timer in (member.session, member.rebalance):
        if timer is not None:
            timer.cancel()
