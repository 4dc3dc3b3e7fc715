"""The methods of :class:`~kafkaclient.admin.Admin` for consumer groups: their members and their
committed offsets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.admin.error_codes import (
    GROUP_ID_NOT_FOUND,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafkaclient.admin.running import Runnable
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import ConfigError, KafkaError, UnsupportedVersionError
from kafkaclient.topic_names import several
from kafkaclient.wire.groups import (
    ConsumerGroupDescribeCall,
    DescribeGroupsCall,
    OffsetCommitCall,
)
from kafkaclient.wire.membership import DeleteGroupsCall, ListGroupsCall, RemoveMembersCall
from kafkaclient.wire.transactions import CoordinatorKind, FindCoordinatorCall, OffsetFetchCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.admin.session import AdminSession
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.groups import DescribedGroup, DescribedMember
    from kafkaclient.wire.membership import GroupListing
    from kafkaclient.wire.transactions import PartitionCodes

T = TypeVar("T")

_UNKNOWN_TOPIC_READS = 5  # answers until an unknown topic is an error: the topic may be new


class GroupAdmin(Runnable):
    """The group methods of :class:`~kafkaclient.admin.Admin`."""

    async def describe_group(self, group: str, *, timeout_s: float | None = None) -> DescribedGroup:
        """A consumer group of the classic protocol or of KIP-848, with its members. A group that
        does not exist has the state ``Dead``. Of a share group or a streams group (KIP-1071) only
        the state and the kind are known, not the members. Raises AuthorizationError, or the
        coordinator's BrokerError."""
        async with self._operation(f"describing group {group!r}", timeout_s) as running:
            session = running.session

            async def attempt() -> DescribedGroup:
                node = await _coordinator(session, group)
                (found,) = (await session.once(DescribeGroupsCall((group,)), node)).groups
                if found.error_code == GROUP_ID_NOT_FOUND or found.state == "Dead":
                    found = await _not_classic(session, group, node, found)
                _check(found.error_code, group, "describing", found.error_message)
                return found

            return await running.session.until_answered(attempt)

    async def committed_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int]:
        """The committed offsets of a group, by default of all its partitions. The result omits
        partitions without a committed offset. Raises as :meth:`describe_group`."""
        what = "reading the offsets of"
        wanted = None if partitions is None else several(partitions, "partitions")
        call = OffsetFetchCall(group, wanted, require_stable=False)
        async with self._operation(f"{what} group {group!r}", timeout_s) as running:

            async def attempt() -> dict[TopicPartition, int]:
                found = await _request_coordinator(running.session, group, call)
                _check(found.group_error_code, group, what)
                codes = {p: each.error_code for p, each in found.offsets.items()}
                _check_partitions(codes, found.error_code, group, what)
                return {p: each.offset for p, each in found.offsets.items() if each.offset >= 0}

            return await running.session.until_answered(attempt) if wanted != () else {}

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> None:
        """Set the committed offsets of a group without members. Raises AuthorizationError,
        UnknownTopicError, or the coordinator's BrokerError: UNKNOWN_MEMBER_ID if the group has
        members. Such an error names the partitions whose offsets are not set. The offsets of the
        other partitions are set. Raises ConfigError for an offset below 0, and then sets none."""
        what = "setting the offsets of"
        wrong = {str(partition): at for partition, at in offsets.items() if not 0 <= at < 2**63}
        if wrong:
            raise ConfigError(f"{what} group {group!r}: offsets are 0 to 2**63 - 1, not {wrong}")
        call = OffsetCommitCall(group, offsets)
        async with self._operation(f"{what} group {group!r}", timeout_s) as running:
            session = running.session

            async def attempt() -> PartitionCodes:
                found = await _request_coordinator(session, group, call, "Read")
                if found.error_code != UNKNOWN_TOPIC_OR_PARTITION:
                    _check_partitions(found.codes, found.error_code, group, what, "Read")
                return found

            found = await session.poll(
                lambda: session.until_answered(attempt),
                lambda found: not found.error_code,
                max_reads=_UNKNOWN_TOPIC_READS,
            )
            _check_partitions(found.codes, found.error_code, group, what, "Read")

    async def list_groups(self, *, timeout_s: float | None = None) -> list[GroupListing]:
        """All groups that this client may describe, sorted by name. Sends a request to every
        broker. Raises BrokerError."""
        async with self._operation("listing groups", timeout_s) as running:
            what = "listing the groups"
            answers = await running.session.from_each_broker(ListGroupsCall(), what)
            return sorted({group for answer in answers for group in answer.groups})

    async def delete_groups(
        self, groups: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete groups without members, with their committed offsets. Returns by group None or the
        error: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if there is no such group."""
        names = several(groups, "groups")

        async def delete(session: AdminSession, name: str) -> KafkaError | None:
            async def attempt() -> None:
                found = await _request_coordinator(
                    session, name, DeleteGroupsCall((name,)), "Delete"
                )
                _check(found.error_code, name, "deleting", operation="Delete")

            try:
                await session.until_answered(attempt)
            except KafkaError as error:
                return error
            return None

        async with self._operation("deleting groups", timeout_s) as running:
            results = await asyncio.gather(*(delete(running.session, name) for name in names))
            return dict(zip(names, results, strict=True))

    async def remove_members(
        self,
        group: str,
        members: Iterable[DescribedMember],
        *,
        reason: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Remove members of :meth:`describe_group` from a group (Java:
        ``removeMembersFromConsumerGroup``). A member that runs joins again; a static member does
        not, and fails. Members that have left meanwhile are no error. Raises AuthorizationError, or
        the coordinator's BrokerError. Needs brokers from 2.4."""
        call = RemoveMembersCall(group, tuple(members), reason)
        async with self._operation(f"removing members of group {group!r}", timeout_s) as running:

            async def attempt() -> None:
                found = await _request_coordinator(running.session, group, call, "Read")
                left = (code for code in found.codes.values() if code != UNKNOWN_MEMBER_ID)
                code = next(filter(None, left), 0)
                _check(code, group, "removing members of", operation="Read")

            if call.members:
                await running.session.until_answered(attempt)


async def _request_coordinator(
    session: AdminSession, group: str, call: Call[T], right: str = "Describe"
) -> T:
    """The answer of the group's coordinator. ``right``: what the call needs, as in ACLs."""
    return await session.once(call, await _coordinator(session, group, right))


async def _coordinator(session: AdminSession, group: str, right: str = "Describe") -> int:
    found = await session.once(FindCoordinatorCall(CoordinatorKind.GROUP, group))
    what = "looking for the coordinator of"
    _check(found.error_code, group, what, found.error_message, grant=right)
    return found.node_id


async def _not_classic(
    session: AdminSession, group: str, node: int, missing: DescribedGroup
) -> DescribedGroup:
    """The description of a group that DescribeGroups does not know (``missing`` is its answer)."""
    with suppress(UnsupportedVersionError):  # brokers before 3.7
        (found,) = (await session.once(ConsumerGroupDescribeCall((group,)), node)).groups
        if found.error_code != GROUP_ID_NOT_FOUND:
            return found
    listed = await session.once(ListGroupsCall(), node)
    _check(listed.error_code, group, "looking for")
    dead = missing._replace(error_code=0, error_message=None, state="Dead")
    for each in listed.groups:
        if each.group_id == group and each.kind.lower() not in ("", "classic"):
            return dead._replace(state=each.state, kind=each.kind.lower())
    return dead


def _check(
    code: int,
    group: str,
    doing: str,
    detail: str | None = None,
    *,
    operation: str = "Describe",
    grant: str = "",
) -> None:
    if code:
        advice = denied(code, operation, group, grant=grant)
        raise broker_error(code, f"{doing} group {group!r}", detail, advice=advice)


def _check_partitions(
    codes: Mapping[TopicPartition, int],
    code: int,
    group: str,
    doing: str,
    operation: str = "Describe",
) -> None:
    """Raise ``code``, the first error among ``codes``, with the partitions that failed."""
    if not code:
        return
    failed = [partition for partition, each in codes.items() if each]
    first = next(partition for partition in failed if codes[partition] == code)
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    resource = first.topic if code == TOPIC_AUTHORIZATION_FAILED else group
    error = broker_error(
        code,
        f"{doing} group {group!r}, for {first}{more} of {len(codes)} partitions",
        advice=denied(code, operation, resource),
    )
    error.retriable &= code != UNKNOWN_TOPIC_OR_PARTITION  # brokers say that it does not exist
    raise error
