"""Resets an application to process its input topics again (Java: ``StreamsResetter``)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkaclient.admin.places import Place, admin_ends, admin_offsets
from kafkaclient.errors import (
    BrokerError,
    StreamsError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from kafkaclient.streams.description import ASSIGNOR, check_assignor
from kafkaclient.streams.positions import is_positions_group
from kafkaclient.types import TopicPartition
from kafkaclient.wire.transactions import TxnState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kafkaclient.admin.admin import Admin
    from kafkaclient.wire.groups import DescribedGroup, DescribedMember
    from kafkaclient.wire.membership import GroupListing

_SETTLE_S = 3.5  # a member that runs joins again with its next heartbeat (Java's default: 3 s)
_LOOK_EVERY_S = 0.5
_CLASSIC = ("", "classic", "Classic")  # the kind of group of this package's applications
_NO_APPLICATION = ("consumer", "Consumer", "share", "Share")
_TASK_OR_PROCESS = r"(\d+_\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\d+)?)"


BEGINNING: Final = Place(word="earliest")


class OffsetChange(NamedTuple):
    """A partition of an input topic. ``before``: its committed offset, None if there is none."""

    partition: TopicPartition
    before: int | None
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """What a reset changes on the brokers."""

    application_id: str
    members: tuple[DescribedMember, ...]
    """Members of the group. The application cannot be reset while it has members."""
    offsets: tuple[OffsetChange, ...]
    internal_topics: tuple[str, ...]
    """The changelogs and repartition topics. They are deleted; the application makes new ones."""
    positions_groups: tuple[str, ...]
    """Groups in which instances have published the positions of standbys. They are deleted."""
    ambiguous_topics: tuple[str, ...] = ()
    """Topics that can be internal topics of the application, or of another one. With them the plan
    cannot be carried out: name those to delete (``internal_topics``)."""
    unknown_inputs: tuple[str, ...] = ()
    """Given ``input_topics`` for which the application has no committed offsets."""
    known_inputs: tuple[str, ...] = ()
    """The topics for which it has."""
    is_application: bool = True
    """Whether something on the brokers tells that the group is one of a streams application."""

    def check(self, *, force: bool = False) -> None:
        """Raise :class:`~kafkaclient.errors.StreamsError` if the plan cannot be carried out.
        ``force``: also for a group of which nothing tells that it is a streams application, and for
        input topics for which it has no offsets."""
        if self.ambiguous_topics:
            sure = ",".join(self.internal_topics)
            raise StreamsError(
                f"{', '.join(self.ambiguous_topics)}: brokers do not tell whether this is an "
                f"internal topic of application {self.application_id!r} or of another application. "
                "Nothing was done. Name all topics to delete with --internal-topics; without the "
                f"ambiguous ones that is --internal-topics '{sure}'"
            )
        if self.unknown_inputs and not force:
            raise StreamsError(
                f"application {self.application_id!r} has no committed offsets of "
                f"{', '.join(self.unknown_inputs)}: its inputs are "
                f"{', '.join(self.known_inputs) or 'not known'}. Nothing was done. Correct "
                "--input-topics, or give --force"
            )
        if not self.is_application and not force:
            raise StreamsError(
                f"nothing on the brokers tells that group {self.application_id!r} is a streams "
                "application: it has offsets, but no internal topics and no transactional ids. "
                "Nothing was done. If it is one, for example because it was reset before, give "
                "--force"
            )


async def plan_reset(
    admin: Admin,
    application_id: str,
    to: Place = BEGINNING,
    *,
    input_topics: Collection[str] | None = None,
    internal_topics: Collection[str] | None = None,
) -> ResetPlan:
    """What :func:`carry_out` would change. Changes nothing.

    ``input_topics``: by default all topics for which the application has committed offsets. Others
    need ``force``.
    ``internal_topics``: those to delete, by default all. A name that cannot be an internal topic of
    the application is refused. A topic ``words-2-counts-changelog`` can be one of application
    ``words`` (store ``2-counts``) or ``words-2``: it is deleted by default only if offsets tell
    that it is of this application, and is otherwise in :attr:`ResetPlan.ambiguous_topics`.

    Raises :class:`~kafkaclient.errors.StreamsError` if brokers know nothing of the application, a
    topic does not exist, or the group is not the group of a streams application.
    """
    group = await admin.describe_group(application_id)
    listed = await admin.list_groups()
    _check_kind(group, listed)
    topics = await admin.describe_topics()
    positions = tuple(
        each.group_id for each in listed if is_positions_group(each.group_id, application_id)
    )
    committed = await admin.committed_offsets(application_id)
    candidates = _candidates(topics, application_id)
    # Its group has no offsets of its own changelogs. Another application's can be its input.
    known = {p.topic for p in committed if p.topic.endswith("-repartition")}
    for name in positions:
        known.update(p.topic for p in await admin.committed_offsets(name))
    can_be_other = bool(await _shorter_applications(admin, application_id, listed))
    own = {
        name
        for name in candidates
        if name in known or not (can_be_other or _can_be_longer(name, application_id))
    }
    if internal_topics is not None:
        if unknown := set(internal_topics) - set(candidates):
            raise StreamsError(
                f"{', '.join(sorted(unknown))}: not an internal topic of application "
                f"{application_id!r}, which has {', '.join(candidates) or 'none'}"
            )
        own.update(internal_topics)
    if not (group.members or candidates or positions or committed):
        raise StreamsError(
            f"there is no application {application_id!r}: brokers have no group, no offsets and no "
            "internal topics of it. Is this its application.id, and the right cluster?"
        )
    inputs = known_inputs = {p.topic for p in committed} - own
    if input_topics is None:
        inputs = known_inputs & topics.keys()
    elif unknown := set(input_topics) - topics.keys():
        raise StreamsError(f"there is no topic {', '.join(sorted(unknown))}")
    else:
        inputs = set(input_topics)
    partitions = [
        TopicPartition(topic, view.partition)
        for topic in sorted(inputs)
        for view in topics[topic].partitions
    ]
    return ResetPlan(
        application_id=application_id,
        members=group.members,
        offsets=await _offsets(admin, partitions, committed, to),
        internal_topics=tuple(sorted(own if internal_topics is None else set(internal_topics))),
        positions_groups=positions,
        ambiguous_topics=tuple(sorted(set(candidates) - own)) if internal_topics is None else (),
        unknown_inputs=tuple(sorted(inputs - known_inputs)),
        known_inputs=tuple(sorted(known_inputs)),
        is_application=bool(
            own
            or positions
            or group.protocol == ASSIGNOR
            or await _transactional_ids(admin, application_id)
        ),
    )


async def carry_out(
    admin: Admin, plan: ResetPlan, *, force: bool = False, settle_s: float = _SETTLE_S
) -> None:
    """Reset the application: end its open transactions, set its offsets, and delete its internal
    topics and positions groups. After an error call it again, before an instance starts.

    ``force``: as in :meth:`ResetPlan.check`. Also first remove the group's members, such as
    instances that were killed and whose session has not expired. A member that runs joins again:
    the group is watched for ``settle_s`` seconds, and members in it are an error.

    Raises :class:`~kafkaclient.errors.StreamsError` as :meth:`ResetPlan.check`, if the application
    has members, if a topic or group cannot be deleted, or if the committed offsets are not the
    planned ones at the end. Errors of the admin client are raised unchanged.
    """
    application_id = plan.application_id
    plan.check(force=force)
    members = (await admin.describe_group(application_id)).members
    if members:
        if not force:
            raise StreamsError(_still_members(application_id, members) + ". Stop all instances")
        await admin.remove_members(application_id, members, reason="the application is reset")
        await _watch(admin, application_id, settle_s)
    await _end_transactions(admin, application_id)
    offsets = {change.partition: change.after for change in plan.offsets}
    if offsets:
        await admin.alter_offsets(application_id, offsets)
    # Brokers remove the offsets of deleted topics from all groups.
    results = await admin.delete_topics(plan.internal_topics) if plan.internal_topics else {}
    if plan.positions_groups:
        results |= await admin.delete_groups(plan.positions_groups)
    failed = {
        name: error
        for name, error in results.items()
        if error is not None and not _is_gone(error)  # somebody else may have deleted it
    }
    if failed:
        name, error = next(iter(failed.items()))
        raise StreamsError(
            f"application {application_id!r} is not completely reset: {len(failed)} of its "
            f"internal topics and positions groups could not be deleted, such as {name}: {error}. "
            "Reset it again before you start an instance"
        ) from error
    found = await admin.committed_offsets(application_id, offsets) if offsets else {}
    for partition, offset in offsets.items():
        if found.get(partition) != offset:
            raise StreamsError(
                f"application {application_id!r} is not reset: its committed offset of "
                f"{partition.topic}-{partition.partition} was set to {offset}, and now is "
                f"{found.get(partition, 'gone')}. Somebody else resets it, or an instance was "
                "started. Stop all instances, and reset it again with --force"
            )


def _is_gone(error: BaseException) -> bool:
    """Whether there is no such topic or group."""
    return isinstance(error, UnknownTopicError) or (
        isinstance(error, BrokerError) and error.name == "GROUP_ID_NOT_FOUND"
    )


def _check_kind(group: DescribedGroup, listed: Iterable[GroupListing]) -> None:
    kinds = {each.group_id: each.kind for each in listed}
    kind = kinds.get(group.group_id, "")
    if kind not in _CLASSIC:
        raise StreamsError(
            f"group {group.group_id!r} has the {kind} protocol: reset it with Kafka's own tools"
        )
    if group.protocol_type not in ("", "consumer") or group.protocol:
        check_assignor(group)


def _candidates(topics: Iterable[str], application_id: str) -> list[str]:
    """The topics that have the name of a changelog or repartition topic of the application."""
    pattern = re.compile(rf"{re.escape(application_id)}-.+-(changelog|repartition)")
    return sorted(filter(pattern.fullmatch, topics))


def _can_be_longer(topic: str, application_id: str) -> bool:
    """Whether the topic can belong to an application whose id begins with this id and ``-``. It may
    have no group any more: brokers delete an empty group after ``offsets.retention.minutes``."""
    return "-" in topic.removeprefix(f"{application_id}-").rpartition("-")[0]


async def _shorter_applications(
    admin: Admin, application_id: str, listed: Iterable[GroupListing]
) -> list[str]:
    """The groups that can be applications, and whose topics can begin with this application's id:
    ``words`` may have a store ``2-counts``, and this application be ``words-2``."""
    found = []
    for each in listed:
        name = each.group_id
        if not application_id.startswith(f"{name}-") or each.kind in _NO_APPLICATION:
            continue
        protocol = (await admin.describe_group(name)).protocol if each.kind in _CLASSIC else ""
        if protocol in ("", ASSIGNOR):
            found.append(name)
    return found


async def _offsets(
    admin: Admin,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, int],
    to: Place,
) -> tuple[OffsetChange, ...]:
    ends = await admin_ends(admin, partitions, read_committed=True)
    found = await admin_offsets(admin, to, *ends, committed)
    # A shift leaves out what the application has not committed.
    wanted = [p for p in partitions if to.shift is None or p in committed]
    if missing := set(wanted) - found.keys():
        without = ", ".join(f"{p.topic}-{p.partition}" for p in sorted(missing))
        raise StreamsError(f"the offsets of {without} are not known: there is no leader")
    return tuple(OffsetChange(p, committed.get(p), at) for p, at in sorted(found.items()))


async def _watch(admin: Admin, application_id: str, settle_s: float) -> None:
    until = asyncio.get_running_loop().time() + settle_s
    while True:
        if members := (await admin.describe_group(application_id)).members:
            raise StreamsError(
                f"{_still_members(application_id, members)}: they were removed, and have joined "
                "again, so they run. Nothing was reset. Stop all instances"
            )
        if asyncio.get_running_loop().time() >= until:
            return
        await asyncio.sleep(_LOOK_EVERY_S)


def _still_members(application_id: str, members: Iterable[DescribedMember]) -> str:
    shown = [f"{each.group_instance_id or each.member_id} on {each.host}" for each in members]
    more = f" and {len(shown) - 3} others" if len(shown) > 3 else ""
    return f"application {application_id!r} has members: {', '.join(shown[:3])}{more}"


async def _end_transactions(admin: Admin, application_id: str) -> None:
    """Abort the transactions that killed instances have left open, and fence their producers. An
    instance that was paused could otherwise still commit its offsets. Brokers before 3.0 abort
    them after ``transaction.timeout.ms``."""
    names = await _transactional_ids(admin, application_id, TxnState.ONGOING)
    for error in (await admin.fence_producers(names)).values() if names else ():
        if error is not None:
            raise error


async def _transactional_ids(admin: Admin, application_id: str, *states: TxnState) -> list[str]:
    """Those of the application's instances or tasks. Empty for brokers before 3.0."""
    pattern = re.compile(rf"{re.escape(application_id)}-{_TASK_OR_PROCESS}")
    try:
        found = await admin.list_transactions(f"{application_id}-", states=states)
    except UnsupportedVersionError:
        return []
    return [each.transactional_id for each in found if pattern.fullmatch(each.transactional_id)]
