"""Plans a read: reads its partitions, and their start and end offsets, from the cluster."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from kafkaclient.admin import Admin
from kafkaclient.config.admin import AdminConfig
from kafkaclient.errors import ConfigError, UnknownTopicError
from kafkaclient.reader import Reader
from kafkaclient.spark.filters import narrowed, since_ms
from kafkaclient.spark.group_progress import GroupProgress
from kafkaclient.spark.offsets import EARLIEST, LATEST, ByTime, OffsetRange, split
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Mapping

    from kafkaclient.admin.topics import TopicDescription
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.spark.filters import Condition
    from kafkaclient.spark.offsets import OffsetLimit
    from kafkaclient.spark.options import ReadOptions

# A broker that has just started may have old metadata: how often and how late (in seconds) to ask
# again for a partition that seems to be gone. In sum 10 s.
_PAUSES_S = (0.1, 0.2, 0.7, *(1.0,) * 9)

# The admin client accepts no fetch options.
_FOR_ADMIN = frozenset(
    name for declared in AdminConfig.OPTIONS.values() for name in declared.spellings
)


class Planner:
    """Reads partitions and offsets from the cluster. :meth:`close` also ends a failed start."""

    def __init__(
        self,
        options: ReadOptions,
        dialer: Dialer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._clock = clock
        self._reader = Reader(options.client, dialer=dialer)
        shared = {name: value for name, value in options.client.items() if name in _FOR_ADMIN}
        self._admin = Admin(shared, dialer=dialer)
        group = options.group
        self._group = GroupProgress(self._admin, group, clock) if group is not None else None
        self._matching_topics: list[str] = []
        """The topics that match the pattern."""
        self._matched_at = float("-inf")

    async def start(self) -> None:
        await self._reader.start()
        await self._admin.start()

    async def close(self) -> None:
        async with AsyncExitStack() as each:  # also after an error
            each.push_async_callback(self._reader.close)
            each.push_async_callback(self._admin.close)
            if self._group is not None:
                await self._group.finish()

    async def report_progress(
        self, offsets: Mapping[TopicPartition, int], *, wait: bool = False
    ) -> None:
        """Commit the offsets to the group of the option commitOffsetsToGroup, if it is given.
        ``wait``: return when the commit is done or has failed."""
        if self._group is not None:
            self._group.report(offsets)
            if wait:
                await self._group.finish()

    async def partitions(self, *, ignore_missing: bool = False) -> list[TopicPartition]:
        """All subscribed partitions that exist now.

        Raises UnknownTopicError for a subscribed topic or assigned partition that does not exist.
        With ``ignore_missing`` those are left out.
        """
        subscription = self._options.subscription
        if subscription.pattern is not None:
            await self._refresh_matching_topics(subscription.pattern)
            # A topic that was deleted since does not match any more.
            return await self._partitions_of(self._matching_topics, ignore_missing=True)
        if subscription.topics:
            return await self._partitions_of(subscription.topics, ignore_missing=ignore_missing)
        assigned = set(subscription.partitions)
        topics = {tp.topic for tp in assigned}
        there = await self._partitions_of(topics, ignore_missing=ignore_missing)
        gone = assigned.difference(there)
        if gone and not ignore_missing:
            raise UnknownTopicError(
                f"option assign names {_list_partitions(gone)}, which do not exist"
            )
        return [tp for tp in there if tp in assigned]

    async def _refresh_matching_topics(self, pattern: re.Pattern[str]) -> None:
        """Find the topics of the pattern, which takes metadata of the whole cluster. At most every
        ``metadata.max.age.ms``, as a consumer does that subscribes to a pattern."""
        if self._clock() - self._matched_at >= self._reader.config.metadata_max_age_ms / 1000:
            self._matching_topics = list(filter(pattern.fullmatch, await self._admin.list_topics()))
            self._matched_at = self._clock()

    async def _partitions_of(
        self, topics: Collection[str], *, ignore_missing: bool
    ) -> list[TopicPartition]:
        found = await self._describe(topics, ignore_missing=ignore_missing)
        return [
            TopicPartition(name, number)
            for name in sorted(found)
            for number in range(len(found[name].partitions))
        ]

    async def _describe(
        self, topics: Collection[str], *, ignore_missing: bool
    ) -> dict[str, TopicDescription]:
        """The descriptions of these topics only: others may be thousands."""
        try:
            return await self._admin.describe_topics(topics)
        except UnknownTopicError:
            if not ignore_missing:
                raise
        each = await asyncio.gather(*(self._describe_existing(name) for name in sorted(topics)))
        return {name: found for one in each for name, found in one.items()}

    async def _describe_existing(self, topic: str) -> dict[str, TopicDescription]:
        try:
            return await self._admin.describe_topics([topic])
        except UnknownTopicError:
            return {}

    async def offsets(
        self, partitions: Collection[TopicPartition], at: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]:
        """The first offsets, or the end offsets. With ``isolation.level=read_committed`` open
        transactions are excluded."""
        return await self._reader.offsets(partitions, at)

    async def end_offsets(
        self, known: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, int]:
        """The end offsets of all subscribed partitions that exist now. If one of ``known`` seems to
        be gone, the brokers are asked again for 10 s."""
        found = await self.partitions(ignore_missing=True)
        for pause_s in _PAUSES_S:
            if not set(known).difference(found):
                break
            await asyncio.sleep(pause_s)
            self._matched_at = float("-inf")
            found = await self.partitions(ignore_missing=True)
        return await self.offsets(found, "latest")

    async def skip_unmatched(
        self, ranges: list[OffsetRange], conditions: tuple[Condition, ...]
    ) -> list[OffsetRange]:
        """The parts of the ranges that have all records that satisfy the conditions."""
        ranges = [part for each in ranges if (part := narrowed(each, conditions)).size]
        since = since_ms(conditions)
        if since is None:
            return ranges
        # Records before the first one of this time or a later one are older.
        first = await self._reader.offsets([each.topic_partition for each in ranges], since)
        starts = ((each, first[each.topic_partition]) for each in ranges)
        return [
            replace(each, start=max(each.start, start))
            for each, start in starts
            if start is not None
        ]

    async def resolve(
        self, limit: OffsetLimit, partitions: Collection[TopicPartition], side: str
    ) -> dict[TopicPartition, int]:
        """The offsets that the option ``{side}Offsets`` or ``{side}...Timestamp`` means.

        Raises ConfigError if the option leaves out a partition or names a wrong one, or if a
        partition has no record with the given timestamp or a later one.
        """
        if isinstance(limit, ByTime):
            return await self._at_times(limit, partitions, side)
        offsets = _of_each(partitions, limit.offsets, f"{side}Offsets")
        begin = await self.offsets([tp for tp in offsets if offsets[tp] == EARLIEST], "earliest")
        end = await self.offsets([tp for tp in offsets if offsets[tp] == LATEST], "latest")
        return offsets | begin | end

    async def _at_times(
        self, limit: ByTime, partitions: Collection[TopicPartition], side: str
    ) -> dict[TopicPartition, int]:
        times = _of_each(partitions, limit.times, f"{side}OffsetsByTimestamp")
        found: dict[TopicPartition, int] = {}
        for at_time in await asyncio.gather(
            *(
                self._reader.offsets([tp for tp in times if times[tp] == each], each)
                for each in set(times.values())
            )
        ):
            found |= {tp: offset for tp, offset in at_time.items() if offset is not None}
        without_record = times.keys() - found.keys()
        if without_record and limit.otherwise == "error":
            raise ConfigError(
                f"the options {side}Timestamp and {side}OffsetsByTimestamp found no record with "
                f"that timestamp or a later one in {_list_partitions(without_record)}; with "
                "startingOffsetsByTimestampStrategy=latest such partitions are read from their end"
            )
        return found | await self.offsets(without_record, "latest")


async def plan_batch(
    options: ReadOptions,
    dialer: Dialer | None = None,
    *,
    conditions: tuple[Condition, ...] = (),
) -> list[OffsetRange]:
    """The offset ranges of a batch read's tasks. Records written later are not included, nor are
    ranges without records that satisfy ``conditions``."""
    planner = Planner(options, dialer)
    try:
        await planner.start()
        partitions = await planner.partitions()
        # The log may move on meanwhile: with this order the start is not before ``earliest``, and
        # the end not after ``latest``.
        earliest = await planner.offsets(partitions, "earliest")
        start = await planner.resolve(options.start, partitions, "starting")
        end = await planner.resolve(options.end, partitions, "ending")
        latest = await planner.offsets(partitions, "latest")
        ranges = []
        for tp in partitions:
            for side, offset in (("startingOffsets", start[tp]), ("endingOffsets", end[tp])):
                if not earliest[tp] <= offset <= latest[tp]:
                    options.report_loss(
                        f"{side} has offset {offset} for {tp}, which has {earliest[tp]} to "
                        f"{latest[tp]}"
                    )
            begin = max(start[tp], earliest[tp])
            ranges.append(OffsetRange(*tp, begin, max(begin, min(end[tp], latest[tp]))))
        ranges = await planner.skip_unmatched(ranges, conditions)
    finally:
        await planner.close()
    return split(ranges, options.min_partitions, options.max_records)


def _of_each(
    partitions: Collection[TopicPartition], given: int | Mapping[TopicPartition, int], option: str
) -> dict[TopicPartition, int]:
    """The option's value for each partition. Raises ConfigError if partitions do not match."""
    if isinstance(given, int):
        return dict.fromkeys(partitions, given)
    missing, others = set(partitions) - given.keys(), given.keys() - set(partitions)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(
            f"option {option} must name every partition; {_list_partitions(missing)} {verb} missing"
        )
    if others:
        raise ConfigError(
            f"option {option} names {_list_partitions(others)}, not subscribed or nonexistent"
        )
    return dict(given)


def _list_partitions(partitions: Collection[TopicPartition]) -> str:
    names = [str(tp) for tp in sorted(partitions)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
