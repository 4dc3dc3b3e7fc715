"""Consumer groups: their members, their committed offsets, and the end offsets of partitions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import DescribeGroupsCall, OffsetCommitCall
from kafkaclient.wire.offsets import ListOffsetsCall
from kafkaclient.wire.transactions import CoordinatorKind, FindCoordinatorCall, OffsetFetchCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.admin.session import Session
    from kafkaclient.wire.groups import DescribedGroup

__all__ = ["Groups"]

_UNKNOWN_GROUP = 69  # GROUP_ID_NOT_FOUND: brokers from 4.0 on answer this for an unknown group


class Groups:
    """The requests for groups. Each runs within the time limit of the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def describe(self, group: str) -> DescribedGroup:
        """The group; an unknown group has the state ``Dead``. Raises the coordinator's error."""
        call = DescribeGroupsCall((group,))

        async def attempt() -> DescribedGroup:
            coordinator = await self._coordinator(group)
            (found,) = (await self._session.once(call, coordinator)).groups
            if found.error_code == _UNKNOWN_GROUP:
                return found._replace(error_code=0, error_message=None, state="Dead")
            _check(found.error_code, group, "describing", found.error_message)
            return found

        return await self._session.until_answered(attempt)

    async def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The committed offsets, without partitions that have none."""
        call = OffsetFetchCall(group, tuple(partitions), require_stable=False)

        async def attempt() -> dict[TopicPartition, int]:
            found = await self._session.once(call, await self._coordinator(group))
            _check(found.error_code, group, "reading the offsets of")
            return {
                partition: committed.offset
                for partition, committed in found.offsets.items()
                if committed.offset >= 0
            }

        return await self._session.until_answered(attempt) if call.partitions else {}

    async def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the committed offsets of a group without members."""
        call = OffsetCommitCall(group, offsets)

        async def attempt() -> None:
            found = await self._session.once(call, await self._coordinator(group))
            _check(found.error_code, group, "setting the offsets of", operation="Read")

        await self._session.until_answered(attempt)

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The last stable offsets, without partitions that do not exist or have no leader."""
        wanted = set(partitions)

        async def attempt() -> dict[TopicPartition, int]:
            topics = tuple(sorted({topic for topic, _ in wanted}))
            led: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(
                lambda: defaultdict(list)
            )
            for info in (await self._session.metadata(topics)).topics:
                for found in info.partitions:
                    partition = TopicPartition(info.name, found.partition)
                    if found.leader >= 0 and partition in wanted:
                        led[found.leader][info.name].append(found.partition)
            answers = await asyncio.gather(
                *(
                    self._session.once(
                        ListOffsetsCall(
                            {topic: tuple(numbers) for topic, numbers in by_topic.items()},
                            read_committed=True,
                        ),
                        node,
                    )
                    for node, by_topic in led.items()
                )
            )
            ends = {}
            for each in (each for answer in answers for each in answer.partitions):
                if each.error_code:
                    what = f"reading the end offset of {each.topic}-{each.partition}"
                    raise broker_error(each.error_code, what)
                ends[TopicPartition(each.topic, each.partition)] = each.offset
            return ends

        return await self._session.until_answered(attempt) if wanted else {}

    async def _coordinator(self, group: str) -> int:
        found = await self._session.once(FindCoordinatorCall(CoordinatorKind.GROUP, group))
        _check(found.error_code, group, "looking for the coordinator of", found.error_message)
        return found.node_id


def _check(
    code: int, group: str, doing: str, detail: str | None = None, *, operation: str = "Describe"
) -> None:
    if code:
        advice = denied(code, operation, group, by_itself=True)
        raise broker_error(code, f"{doing} group {group!r}", detail, advice=advice)
