"""Plans a read: reads its partitions, and their start and end offsets, from the cluster."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from kafkaclient.errors import ConfigError, UnknownTopicError
from kafkaclient.reader import Reader
from kafkaclient.spark.filters import narrowed, since_ms
from kafkaclient.spark.offsets import (
    EARLIEST,
    LATEST,
    ByOffset,
    ByTime,
    ReadRange,
    created_again,
    id_text,
    listed,
    split,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Mapping

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.spark.filters import Condition
    from kafkaclient.spark.group_progress import GroupProgress
    from kafkaclient.spark.offsets import OffsetLimit
    from kafkaclient.spark.options import ReadOptions
    from kafkaclient.types import TopicPartition

# A broker that has just started may have old metadata: how often and how late (in seconds) to ask
# again for a partition that seems to be gone. In sum 10 s.
_PAUSES_S = (0.1, 0.2, 0.7, *(1.0,) * 9)


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
        self._dialer = dialer
        self._reader = Reader(options.client, dialer=dialer)
        self._group: GroupProgress | None = None
        self._matching_topics: list[str] = []
        """The topics that match the pattern."""
        self._matched_at = float("-inf")
        self.topic_ids: dict[str, str] = {}
        """The ids of the topics as last seen (:func:`.id_text`); none before Kafka 2.8."""

    async def start(self) -> None:
        await self._reader.start()
        if self._options.group is not None:
            # The admin client takes longer to import than everything else of a query's process.
            from kafkaclient.spark.group_progress import GroupProgress, new_admin  # noqa: PLC0415

            admin = new_admin(self._options.client, self._dialer)
            self._group = GroupProgress(admin, self._options.group, self._clock)
            await self._group.start()

    async def close(self) -> None:
        try:
            if self._group is not None:
                await self._group.close()
        finally:
            await self._reader.close()

    async def commit_to_group(
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
            return await self._partitions_of(self._matching_topics)
        missing: set[str] | set[TopicPartition]
        if subscription.topics:
            found = await self._partitions_of(subscription.topics)
            missing = set(subscription.topics) - {tp.topic for tp in found}
        else:
            assigned = set(subscription.partitions)
            found = await self._partitions_of({tp.topic for tp in assigned})
            found = [tp for tp in found if tp in assigned]
            missing = assigned - set(found)
        if missing and not ignore_missing:
            raise UnknownTopicError(f"{listed(missing)}: subscribed, but nonexistent")
        return found

    async def _refresh_matching_topics(self, pattern: re.Pattern[str]) -> None:
        """Find the topics of the pattern, which takes metadata of the whole cluster. At most every
        ``metadata.max.age.ms``, as a consumer does that subscribes to a pattern."""
        if self._clock() - self._matched_at >= self._reader.config.metadata_max_age_ms / 1000:
            topics = await self._reader.list_topics()
            self._matching_topics = list(filter(pattern.fullmatch, topics))
            self._matched_at = self._clock()

    async def _partitions_of(self, topics: Collection[str]) -> list[TopicPartition]:
        """Only of these topics: others may be thousands."""
        found = await self._reader.list_topics(topics)
        ids = {name: each.topic_id for name, each in found.items() if each.topic_id is not None}
        self.topic_ids |= {name: id_text(each) for name, each in ids.items()}
        return [tp for name in sorted(found) for tp in found[name].partitions]

    async def offsets(
        self, partitions: Collection[TopicPartition], at: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]:
        """The first offsets, or the end offsets. With ``isolation.level=read_committed`` open
        transactions are excluded."""
        return await self._reader.offsets(partitions, at)

    async def end_offsets(
        self,
        known: Mapping[TopicPartition, int] = MappingProxyType({}),
        ids: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[TopicPartition, int]:
        """The end offsets of all subscribed partitions that exist now.

        ``known`` has an offset that the log of each known partition has had, ``ids`` the ids that
        the topics had. If one of these partitions seems to be gone, or a topic to have another id,
        the brokers are asked again for 10 s. An end before the known offset is asked for again,
        too: see :meth:`.Reader.end_offsets`.
        """
        found = await self.partitions(ignore_missing=True)
        for pause_s in _PAUSES_S:
            if not known.keys() - found and not created_again(ids, self.topic_ids):
                break
            await asyncio.sleep(pause_s)
            self._matched_at = float("-inf")
            found = await self.partitions(ignore_missing=True)
        new = created_again(ids, self.topic_ids)
        had = {tp: 0 if tp.topic in new else known.get(tp, 0) for tp in found}
        before = dict(self.topic_ids)
        ends = await self._reader.end_offsets(had)
        if ends != known:
            await self.partitions(ignore_missing=True)
            if created_again(before, self.topic_ids):  # meanwhile: the ends may be of the new topic
                return await self.end_offsets(known, ids)
        return ends

    async def skip_unmatched(
        self, ranges: list[ReadRange], conditions: tuple[Condition, ...]
    ) -> list[ReadRange]:
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
                f"that timestamp or a later one in {listed(without_record)}; with "
                "startingOffsetsByTimestampStrategy=latest such partitions are read from their end"
            )
        return found | await self.offsets(without_record, "latest")


async def plan_batch(
    options: ReadOptions,
    dialer: Dialer | None = None,
    *,
    conditions: tuple[Condition, ...] = (),
) -> list[ReadRange]:
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
        had = {tp: max(start[tp], end[tp]) for tp in partitions}
        if any(latest[tp] < had[tp] for tp in partitions):
            await planner.end_offsets(had)  # until brokers know it that were behind
            latest = await planner.offsets(partitions, "latest")
        if options.end == ByOffset(LATEST):
            end = latest = {tp: max(end[tp], latest[tp]) for tp in partitions}
        ranges = []
        for tp in partitions:
            for side, offset in (("startingOffsets", start[tp]), ("endingOffsets", end[tp])):
                if not earliest[tp] <= offset <= latest[tp]:
                    options.report_loss(
                        f"{side} has offset {offset} for {tp}, which has {earliest[tp]} to "
                        f"{latest[tp]}"
                    )
            begin = max(start[tp], earliest[tp])
            ranges.append(ReadRange(*tp, begin, max(begin, min(end[tp], latest[tp]))))
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
            f"option {option} must name every partition; {listed(missing)} {verb} missing"
        )
    if others:
        raise ConfigError(f"option {option} names {listed(others)}, not subscribed or nonexistent")
    return dict(given)
