"""Which member of an application's group has which tasks, and how far behind they are.

The answer combines the members' subscriptions and assignments with the offsets that brokers have.
Groups of Kafka Streams can be described, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.errors import AuthorizationError, StreamsError, UnknownTopicError
from kafkaclient.streams.group_protocol import (
    NO_REBALANCE,
    AssignmentInfo,
    SubscriptionInfo,
    decode_subscription,
    tasks_by_partition,
)
from kafkaclient.streams.positions import positions_group
from kafkaclient.streams.tasks import LATEST_OFFSET, MAX_LAG, TaskId
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import assignment_in, subscription_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Set
    from uuid import UUID

    from kafkaclient.admin.admin import Admin
    from kafkaclient.wire.groups import DescribedGroup, DescribedMember

ASSIGNOR = "stream"
"""The assignor that the members of a streams application agree on."""

_PROTOCOLS = {
    "consumer": "This is a group of plain consumers (KIP-848), and no streams application: describe"
    " it with Kafka's kafka-consumer-groups.sh",
    "share": "This is a group of share consumers (KIP-932), and no streams application: describe it"
    " with Kafka's kafka-share-groups.sh",
    "streams": "Only Kafka Streams has it (KIP-1071): describe the application with Kafka's "
    "kafka-streams-groups.sh",
}


class Role(Enum):
    """The role in which a member has a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warm-up"
    """An extra copy while the assignment is not balanced. Inferred: assignments do not mark it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDescription:
    """A member's copy of a task."""

    task: TaskId
    role: Role
    partitions: tuple[TopicPartition, ...]
    """The input partitions of an active task, or the changelogs of a standby or warm-up. Empty if
    the changelogs are unknown, because members of Kafka Streams do not report them. ``end`` and
    ``lag`` are None then."""
    position: int | None
    """Sum over ``partitions``. Of an active task: its committed offsets, or the end offset if only
    transaction markers and aborted records follow. Of a standby or warm-up:
    the position that its instance publishes every second, or else the one reported when the member
    last joined. None: unknown, for example before the first commit."""
    end: int | None
    """Sum of the current end offsets of ``partitions``. None: unknown."""

    @property
    def lag(self) -> int | None:
        """``end`` minus ``position``: the number of records that the copy has not processed or
        restored yet. A standby or warm-up without position lacks all records."""
        if self.end is None:
            return None
        if self.position is None:
            return None if self.role is Role.ACTIVE else self.end
        return max(0, self.end - self.position)

    @property
    def progress(self) -> float | None:
        """Fraction of the changelog that the copy has, 0 to 1. None for an active task."""
        if self.role is Role.ACTIVE or self.end is None:
            return None
        return 1.0 if self.end == 0 else min(1.0, (self.position or 0) / self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member and its tasks. All members of an instance have the same ``process_id``."""

    member_id: str
    client_id: str
    host: str
    process_id: UUID
    copies: tuple[CopyDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationDescription:
    """An application's group. A group without members has the ``state`` ``Empty`` or ``Dead``."""

    group: str
    state: str
    members: tuple[MemberDescription, ...]
    next_rebalance_ms: int | None
    """Latest time of the next planned rebalance, in ms since 1970. None: no rebalance is planned,
    because the assignment is balanced."""
    unassigned: tuple[TopicPartition, ...] = ()
    """Input partitions whose task is active nowhere: nobody processes their records. For a moment
    while a task moves, and until the next rebalance after a topic got more partitions."""

    @property
    def is_rebalancing(self) -> bool:
        """Whether the group is rebalancing now."""
        return self.state in ("PreparingRebalance", "CompletingRebalance")

    @property
    def is_balanced(self) -> bool:
        """Whether every task is active, and where the assignor finally wants it. Not without
        members."""
        return bool(self.members) and self.next_rebalance_ms is None and not self.unassigned


@dataclass(frozen=True, slots=True)
class _DecodedMember:
    """A group member with its decoded subscription and assignment."""

    described: DescribedMember
    topics: tuple[str, ...]
    """The input topics that it subscribes to."""
    subscription: SubscriptionInfo
    info: AssignmentInfo
    active: Mapping[TaskId, tuple[TopicPartition, ...]]
    copies: dict[TaskId, frozenset[TopicPartition]]
    """Standby tasks -> their changelogs."""


async def describe_application(admin: Admin, group: str) -> ApplicationDescription:
    """Describe the application's group, as the brokers see it now.

    While the group rebalances, no member has an assignment, and ``members`` is empty. Raises
    :class:`~kafkaclient.errors.StreamsError` if the group is not a streams application or a
    member's bytes cannot be decoded. Errors of the admin client are raised unchanged.
    """
    found = await admin.describe_group(group)
    if found.kind != "classic":
        what = _PROTOCOLS.get(found.kind, "This is no group of a streams application")
        raise StreamsError(f"group {group!r} has the {found.kind} protocol. {what}")
    decoded = decode_members(found)
    if any(not changelogs for member in decoded for changelogs in member.copies.values()):
        topics = (await admin.describe_topics()).items()
        counts = {name: len(t.partitions) for name, t in topics if _is_changelog(name, group)}
        decoded = decode_members(found, counts)
    sources = {p for member in decoded for partitions in member.active.values() for p in partitions}
    changelogs: defaultdict[UUID, set[TopicPartition]] = defaultdict(set)
    for member in decoded:
        changelogs[member.subscription.process_id].update(*member.copies.values())
    ends = await admin.end_offsets(sources.union(*changelogs.values()))
    committed = await _processed(admin, group, sources, ends)
    published = {
        process: await admin.committed_offsets(positions_group(group, process), partitions)
        for process, partitions in changelogs.items()
    }
    inputs = await _inputs(admin, {topic for member in decoded for topic in member.topics})
    return build_description(found, decoded, committed, ends, published, inputs - sources)


async def _inputs(admin: Admin, topics: Set[str]) -> set[TopicPartition]:
    """The partitions of those of the topics that exist."""
    try:
        found = await admin.describe_topics(topics)
    except UnknownTopicError:
        found = await admin.describe_topics()
    return {
        TopicPartition(name, number)
        for name in topics & found.keys()
        for number in range(len(found[name].partitions))
    }


async def _processed(
    admin: Admin, group: str, sources: Set[TopicPartition], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The committed offsets. The end offset where a ``read_committed`` consumer finds no record
    behind the committed offset: the offset is committed that follows the last processed record, and
    transaction markers and aborted records may be behind it. Without committed offset: the end
    offset of an empty partition."""
    committed = await admin.committed_offsets(group, sorted(sources))
    missing = sources - committed.keys()
    beginnings = await admin.beginning_offsets(missing)
    committed |= {p: begin for p, begin in beginnings.items() if begin == ends.get(p)}
    behind = {p: (at, ends[p]) for p, at in committed.items() if at < ends.get(p, at)}
    try:
        done = await admin.without_visible_records(behind)
    except AuthorizationError:
        done = set()  # this client may describe topics, but not read them
    return committed | {partition: ends[partition] for partition in done}


def decode_members(
    group: DescribedGroup, changelogs: Mapping[str, int] | None = None
) -> list[_DecodedMember]:
    """Decode the subscriptions and assignments of a stable group's members.

    For a standby, Kafka Streams sends the input partitions, not the changelogs
    (``StreamsPartitionAssignor.java``). If the application has only one subtopology, all its
    changelogs belong to it: ``changelogs`` (topic -> number of partitions) then fills the gap.
    """
    if not group.members or group.state != "Stable":
        return []
    check_assignor(group)
    decoded = [_decode_member(member, group.group_id) for member in group.members]
    subtopologies = {t.subtopology for member in decoded for t in (*member.active, *member.copies)}
    if changelogs and len(subtopologies) == 1:
        for member in decoded:
            for task, found in member.copies.items():
                member.copies[task] = found or frozenset(
                    TopicPartition(topic, task.partition)
                    for topic, count in changelogs.items()
                    if task.partition < count
                )
    return decoded


def check_assignor(group: DescribedGroup) -> None:
    """Raise StreamsError if the group's members are not those of a streams application."""
    if (group.protocol_type, group.protocol) != ("consumer", ASSIGNOR):
        raise StreamsError(
            f"group {group.group_id!r} is not a streams application: its members agreed on "
            f"{group.protocol or 'no'!r} of the {group.protocol_type!r} protocol, not {ASSIGNOR!r}"
        )


def build_description(
    group: DescribedGroup,
    decoded: list[_DecodedMember],
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    published: Mapping[UUID, Mapping[TopicPartition, int]],
    unassigned: Collection[TopicPartition] = (),
) -> ApplicationDescription:
    """The description, from what brokers answered. ``published``: process id -> positions.
    ``unassigned``: the inputs' partitions that no member has."""
    copies = Counter(task for member in decoded for task in member.info.standby_tasks)
    tasks = copies.keys() | {task for member in decoded for task in member.active}
    wanted = min((copies[task] for task in tasks), default=0)
    planned = {member.info.next_rebalance_ms for member in decoded} - {NO_REBALANCE}
    warmups = _warmups(decoded, copies, wanted) if planned else set()
    members = []
    for member in decoded:
        process = member.subscription.process_id
        found = [
            CopyDescription(
                task=task,
                role=Role.ACTIVE,
                partitions=partitions,
                position=_sum_offsets(committed, partitions),
                end=_sum_offsets(ends, partitions),
            )
            for task, partitions in member.active.items()
        ]
        for task, changelogs in member.copies.items():
            is_warmup = (member.described.member_id, task) in warmups
            end = _sum_offsets(ends, changelogs)
            position = _sum_offsets(published.get(process, {}), changelogs)
            found.append(
                CopyDescription(
                    task=task,
                    role=Role.WARMUP if is_warmup else Role.STANDBY,
                    partitions=tuple(sorted(changelogs)),
                    position=position or _reported_position(member, task, end),
                    end=end,
                )
            )
        members.append(
            MemberDescription(
                member_id=member.described.member_id,
                client_id=member.described.client_id,
                host=member.described.host,
                process_id=process,
                copies=tuple(sorted(found, key=lambda copy: (copy.role.value, copy.task))),
            )
        )
    return ApplicationDescription(
        group=group.group_id,
        state=group.state,
        members=tuple(sorted(members, key=lambda m: (m.process_id.bytes, m.member_id))),
        next_rebalance_ms=min(planned, default=None),
        unassigned=tuple(sorted(unassigned)),
    )


def _is_changelog(topic: str, group: str) -> bool:
    return topic.startswith(f"{group}-") and topic.endswith("-changelog")


def _decode_member(member: DescribedMember, group: str) -> _DecodedMember:
    told = subscription_in(member.metadata)
    subscription = decode_subscription(told.user_data or b"")
    if not isinstance(subscription, SubscriptionInfo):
        raise StreamsError(
            f"member {member.member_id} speaks version {subscription.version}, which this "
            "client is too old to read: upgrade it"
        )
    assignment = assignment_in(member.assignment)
    info = AssignmentInfo.decode(assignment.user_data or b"")
    active: dict[TaskId, tuple[TopicPartition, ...]] = {}
    for partition, task in tasks_by_partition(info.active_tasks, assignment.partitions).items():
        active[task] = (*active.get(task, ()), partition)
    copies = {
        task: frozenset(p for p in partitions if _is_changelog(p.topic, group))
        for task, partitions in info.standby_tasks.items()
    }
    return _DecodedMember(member, told.topics, subscription, info, active, copies)


def _warmups(
    decoded: list[_DecodedMember], copies: Mapping[TaskId, int], wanted: int
) -> set[tuple[str, TaskId]]:
    """Surplus copies furthest behind, of tasks with more copies than others: (member id, task)."""
    holders: defaultdict[TaskId, list[tuple[int, str]]] = defaultdict(list)
    for member in decoded:
        for task in member.info.standby_tasks:
            position = _reported_position(member, task, MAX_LAG)
            holders[task].append((-1 if position is None else position, member.described.member_id))
    return {
        (member_id, task)
        for task, found in holders.items()
        for _, member_id in sorted(found)[: copies[task] - wanted]
    }


def _reported_position(member: _DecodedMember, task: TaskId, end: int | None) -> int | None:
    """The position reported when the member joined; ``end`` for a task that was active there."""
    position = member.subscription.task_offset_sums.get(task)
    if position == LATEST_OFFSET:
        return end
    return None if position is None or position < 0 else position


def _sum_offsets(
    offsets: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
) -> int | None:
    """Sum of the partitions' offsets. None without partitions, or if an offset is unknown."""
    found = [offsets[p] for p in partitions if p in offsets]
    return sum(found) if partitions and len(found) == len(partitions) else None
