"""Who runs what in an application, seen from outside: from what its members told each other when
they joined, and what the brokers know since. Reads the groups of Kafka Streams, too."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.errors import StreamsError
from kafkaclient.streams.assignment_info import NO_REBALANCE, AssignmentInfo, tasks_by_partition
from kafkaclient.streams.positions import positions_group
from kafkaclient.streams.subscription_info import SubscriptionInfo, decode_subscription
from kafkaclient.streams.tasks import LATEST_OFFSET, MAX_LAG, TaskId
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import assignment_in, user_data_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from kafkaclient.admin.admin import Admin
    from kafkaclient.wire.groups import DescribedGroup, DescribedMember

__all__ = [
    "ApplicationDescription",
    "CopyDescription",
    "MemberDescription",
    "Role",
    "describe_application",
]

_ASSIGNOR = "stream"


class Role(Enum):
    """What a member has a task for."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warm-up"
    """A copy more than other tasks of the application have, while the assignment is not balanced:
    members are not told which of their copies are warm-ups, so this is a conclusion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDescription:
    """A task's copy on a member."""

    task: TaskId
    role: Role
    partitions: tuple[TopicPartition, ...]
    """What an active task reads; a standby's or a warm-up's changelogs. Members of Kafka Streams do
    not tell which changelogs a copy has; this is empty, and ``end`` and ``lag`` are None, when they
    cannot be concluded either."""
    position: int | None
    """Summed over ``partitions``: an active task's committed offsets; how far a copy's state is, as
    its instance publishes it every second, else as it was when its member joined the group last.
    None: not known, such as before the first commit."""
    end: int | None
    """Where ``partitions`` end now, summed; None: not known."""

    @property
    def lag(self) -> int | None:
        """Records between the two; of an active task those that it has to process still. A copy
        without a position has everything before it."""
        if self.end is None:
            return None
        if self.position is None:
            return None if self.role is Role.ACTIVE else self.end
        return max(0, self.end - self.position)

    @property
    def progress(self) -> float | None:
        """The share of its changelog that a copy has, 0 to 1; None for an active task."""
        if self.role is Role.ACTIVE or self.end is None:
            return None
        return 1.0 if self.end == 0 else min(1.0, (self.position or 0) / self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member, and what it has; ``process_id`` is the same for all members of an instance."""

    member_id: str
    client_id: str
    host: str
    process_id: UUID
    copies: tuple[CopyDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationDescription:
    """An application's group. Without members, ``state`` is ``Empty`` or ``Dead``."""

    group: str
    state: str
    members: tuple[MemberDescription, ...]
    next_rebalance_ms: int | None
    """When the leader will ask for the next rebalance at the latest, in ms since 1970; None: never,
    as the assignment is balanced."""

    @property
    def is_rebalancing(self) -> bool:
        """Whether what everybody has is being decided now."""
        return self.state in ("PreparingRebalance", "CompletingRebalance")

    @property
    def is_balanced(self) -> bool:
        """Whether everybody has what the assignor wants it to have in the end."""
        return self.next_rebalance_ms is None


@dataclass(frozen=True, slots=True)
class _DecodedMember:
    """A member, its bytes decoded."""

    member: DescribedMember
    subscription: SubscriptionInfo
    info: AssignmentInfo
    active: Mapping[TaskId, tuple[TopicPartition, ...]]
    copies: Mapping[TaskId, frozenset[TopicPartition]]
    """With their changelogs."""

    def changelogs(self) -> set[TopicPartition]:
        return {p for found in self.copies.values() for p in found}

    def partitions(self) -> set[TopicPartition]:
        return self.changelogs().union(*self.active.values())


async def describe_application(admin: Admin, group: str) -> ApplicationDescription:
    """Ask the brokers.

    While the group rebalances nobody has anything, so there are no members in the answer.
    Raises :class:`~kafkaclient.errors.StreamsError` when the group is another kind of application's
    or its members cannot be understood, and what the admin client raises.
    """
    found = await admin.describe_group(group)
    read = decode_members(found)
    if any(not changelogs for each in read for changelogs in each.copies.values()):
        read = decode_members(found, await _changelog_topics(admin, group))
    sources = {p for each in read for found in each.active.values() for p in found}
    committed = await admin.committed_offsets(group, sorted(sources))
    ends = await admin.end_offsets({p for each in read for p in each.partitions()})
    published = {
        process: await admin.committed_offsets(
            positions_group(group, process),
            {
                partition
                for each in read
                if each.subscription.process_id == process
                for partition in each.changelogs()
            },
        )
        for process in {each.subscription.process_id for each in read}
    }
    return build_description(found, read, committed, ends, published)


async def _changelog_topics(admin: Admin, group: str) -> dict[str, int]:
    """The application's, with the number of their partitions."""
    topics = await admin.describe_topics()
    return {
        name: len(topic.partitions) for name, topic in topics.items() if _is_changelog(name, group)
    }


def decode_members(
    group: DescribedGroup, changelogs: Mapping[str, int] | None = None
) -> list[_DecodedMember]:
    """Decode what members have told each other, those that have been assigned something.

    Kafka Streams tells what a standby's task reads (``StreamsPartitionAssignor.java``), not its
    changelogs. An application with one subtopology has only this one's: ``changelogs`` are the
    numbers of partitions of the application's changelog topics.
    """
    if not group.members or group.state != "Stable":
        return []
    if group.protocol_type != "consumer" or group.protocol != _ASSIGNOR:
        raise StreamsError(
            f"group {group.group_id!r} is no streams application: its members have agreed on "
            f"{group.protocol or 'no'!r} of the {group.protocol_type!r} protocol, not {_ASSIGNOR!r}"
        )
    read = [_decode_member(member, group.group_id) for member in group.members]
    subtopologies = {t.subtopology for each in read for t in (*each.active, *each.copies)}
    if changelogs and len(subtopologies) == 1:
        return [_with_changelogs(each, changelogs) for each in read]
    return read


def _with_changelogs(each: _DecodedMember, changelogs: Mapping[str, int]) -> _DecodedMember:
    copies = {
        task: found
        or frozenset(
            TopicPartition(topic, task.partition)
            for topic, count in changelogs.items()
            if task.partition < count
        )
        for task, found in each.copies.items()
    }
    return replace(each, copies=copies)


def build_description(
    group: DescribedGroup,
    read: list[_DecodedMember],
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    published: Mapping[UUID, Mapping[TopicPartition, int]],
) -> ApplicationDescription:
    """Put together what is known; pure. ``published`` are the positions of copies, by process."""
    copies = Counter(task for each in read for task in each.info.standby_tasks)
    tasks = copies.keys() | {task for each in read for task in each.active}
    wanted = min((copies[task] for task in tasks), default=0)
    planned = [
        each.info.next_rebalance_ms for each in read if each.info.next_rebalance_ms != NO_REBALANCE
    ]
    warmups = _warmups(read, copies, wanted) if planned else set()
    members = []
    for each in read:
        found = [
            CopyDescription(
                task=task,
                role=Role.ACTIVE,
                partitions=partitions,
                position=_sum_offsets(committed, partitions),
                end=_sum_offsets(ends, partitions),
            )
            for task, partitions in each.active.items()
        ]
        found += [
            CopyDescription(
                task=task,
                role=Role.WARMUP if (each.member.member_id, task) in warmups else Role.STANDBY,
                partitions=tuple(sorted(partitions)),
                position=_published_position(published, each, partitions)
                or _reported_position(each, task, _sum_offsets(ends, partitions)),
                end=_sum_offsets(ends, partitions),
            )
            for task, partitions in each.copies.items()
        ]
        members.append(
            MemberDescription(
                member_id=each.member.member_id,
                client_id=each.member.client_id,
                host=each.member.host,
                process_id=each.subscription.process_id,
                copies=tuple(sorted(found, key=lambda copy: (copy.role.value, copy.task))),
            )
        )
    return ApplicationDescription(
        group=group.group_id,
        state=group.state,
        members=tuple(sorted(members, key=lambda m: (m.process_id.bytes, m.member_id))),
        next_rebalance_ms=min(planned, default=None),
    )


def _is_changelog(topic: str, group: str) -> bool:
    return topic.startswith(f"{group}-") and topic.endswith("-changelog")


def _decode_member(member: DescribedMember, group: str) -> _DecodedMember:
    subscription = decode_subscription(user_data_in(member.metadata) or b"")
    if not isinstance(subscription, SubscriptionInfo):
        raise StreamsError(
            f"member {member.member_id} speaks version {subscription.version}, which is newer than "
            "what this client reads"
        )
    assignment = assignment_in(member.assignment)
    info = AssignmentInfo.decode(assignment.user_data or b"")
    active: defaultdict[TaskId, list[TopicPartition]] = defaultdict(list)
    for partition, task in tasks_by_partition(info.active_tasks, assignment.partitions).items():
        active[task].append(partition)
    copies = {
        task: frozenset(p for p in partitions if _is_changelog(p.topic, group))
        for task, partitions in info.standby_tasks.items()
    }
    return _DecodedMember(
        member, subscription, info, {task: tuple(found) for task, found in active.items()}, copies
    )


def _warmups(
    read: list[_DecodedMember], copies: Mapping[TaskId, int], wanted: int
) -> set[tuple[str, TaskId]]:
    """Of tasks with more copies than others have, those that are furthest behind."""
    holders: defaultdict[TaskId, list[tuple[int, str]]] = defaultdict(list)
    for each in read:
        for task in each.info.standby_tasks:
            position = _reported_position(each, task, MAX_LAG)
            holders[task].append((-1 if position is None else position, each.member.member_id))
    return {
        (member, task)
        for task, found in holders.items()
        for _, member in sorted(found)[: copies[task] - wanted]
    }


def _reported_position(each: _DecodedMember, task: TaskId, end: int | None) -> int | None:
    """What the member reported when it joined; a task that it ran then was at its end."""
    position = each.subscription.task_offset_sums.get(task)
    if position == LATEST_OFFSET:
        return end
    return None if position is None or position < 0 else position


def _published_position(
    published: Mapping[UUID, Mapping[TopicPartition, int]],
    each: _DecodedMember,
    partitions: Collection[TopicPartition],
) -> int | None:
    return _sum_offsets(published.get(each.subscription.process_id, {}), partitions)


def _sum_offsets(
    offsets: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
) -> int | None:
    """None if one of them is not known, or if it is not known which they are."""
    found = [offsets[p] for p in partitions if p in offsets]
    return sum(found) if partitions and len(found) == len(partitions) else None
