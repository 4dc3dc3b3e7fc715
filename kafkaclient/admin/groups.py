"""The methods of :class:`~kafkaclient.admin.Admin` for consumer groups: their members, their
committed offsets, and the end offsets of partitions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.admin.error_codes import GROUP_ID_NOT_FOUND
from kafkaclient.admin.running import Runnable
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import DescribeGroupsCall, OffsetCommitCall
from kafkaclient.wire.offsets import ListOffsetsCall
from kafkaclient.wire.transactions import CoordinatorKind, FindCoordinatorCall, OffsetFetchCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.admin.session import Session
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.groups import DescribedGroup
    from kafkaclient.wire.offsets import ListOffsetsResult

T = TypeVar("T")


class GroupAdmin(Runnable):
    """The group methods of :class:`~kafkaclient.admin.Admin`."""

    async def describe_group(self, group: str, *, timeout_s: float | None = None) -> DescribedGroup:
        """A consumer group of the classic protocol, with its members. A group that does not exist
        has the state ``Dead``. Raises AuthorizationError, or the coordinator's BrokerError."""
        call = DescribeGroupsCall((group,))
        async with self._operation(f"describing group {group!r}", timeout_s) as running:

            async def attempt() -> DescribedGroup:
                (found,) = (await _request_coordinator(running.session, group, call)).groups
                if found.error_code == GROUP_ID_NOT_FOUND:  # brokers from 4.0 on
                    return found._replace(error_code=0, error_message=None, state="Dead")
                _check(found.error_code, group, "describing", found.error_message)
                return found

            return await running.session.until_answered(attempt)

    async def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The committed offsets of a group. The result omits partitions without a committed offset.
        Raises as :meth:`describe_group`."""
        what = "reading the offsets of"
        call = OffsetFetchCall(group, tuple(partitions), require_stable=False)
        async with self._operation(f"{what} group {group!r}", timeout_s) as running:

            async def attempt() -> dict[TopicPartition, int]:
                found = await _request_coordinator(running.session, group, call)
                _check(found.error_code, group, what)
                return {p: each.offset for p, each in found.offsets.items() if each.offset >= 0}

            return await running.session.until_answered(attempt) if call.partitions else {}

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> None:
        """Set the committed offsets of a group without members. Raises AuthorizationError, or the
        coordinator's BrokerError: UNKNOWN_MEMBER_ID if the group has members."""
        what = "setting the offsets of"
        call = OffsetCommitCall(group, offsets)
        async with self._operation(f"{what} group {group!r}", timeout_s) as running:

            async def attempt() -> None:
                found = await _request_coordinator(running.session, group, call)
                _check(found.error_code, group, what, operation="Read")

            await running.session.until_answered(attempt)

    async def end_offsets(
        self,
        partitions: Iterable[TopicPartition],
        *,
        read_committed: bool = True,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, int]:
        """The end offsets of partitions: the last stable offsets, or without ``read_committed`` the
        high watermarks. The result omits partitions that do not exist or have no leader. Raises
        AuthorizationError, or the leader's BrokerError."""
        wanted = set(partitions)
        async with self._operation("reading the end offsets of partitions", timeout_s) as running:
            session = running.session
            if not wanted:
                return {}
            return await session.until_answered(
                lambda: _ends(session, wanted, read_committed=read_committed)
            )


async def _ends(
    session: Session, wanted: set[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    led: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for info in (await session.metadata(tuple(sorted({p.topic for p in wanted})))).topics:
        for view in info.partitions:
            if view.leader >= 0 and TopicPartition(info.name, view.partition) in wanted:
                led[view.leader][info.name].append(view.partition)

    async def answer_of(leader: int) -> ListOffsetsResult:
        topics = {topic: tuple(numbers) for topic, numbers in led[leader].items()}
        return await session.once(ListOffsetsCall(topics, read_committed=read_committed), leader)

    answers = await asyncio.gather(*map(answer_of, led))
    ends = {}
    for each in (each for answer in answers for each in answer.partitions):
        if each.error_code:
            what = f"reading the end offset of {each.topic}-{each.partition}"
            raise broker_error(each.error_code, what)
        ends[TopicPartition(each.topic, each.partition)] = each.offset
    return ends


async def _request_coordinator(session: Session, group: str, call: Call[T]) -> T:
    """The answer of the group's coordinator."""
    found = await session.once(FindCoordinatorCall(CoordinatorKind.GROUP, group))
    _check(found.error_code, group, "looking for the coordinator of", found.error_message)
    return await session.once(call, found.node_id)


def _check(
    code: int, group: str, doing: str, detail: str | None = None, *, operation: str = "Describe"
) -> None:
    if code:
        advice = denied(code, operation, group, by_itself=True)
        raise broker_error(code, f"{doing} group {group!r}", detail, advice=advice)
