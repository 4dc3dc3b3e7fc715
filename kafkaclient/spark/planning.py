"""Plans a read: reads its partitions, and their start and end offsets, from the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kafkaclient.admin import Admin
from kafkaclient.config.admin import AdminConfig
from kafkaclient.errors import ConfigError, UnknownTopicError
from kafkaclient.reader import Reader
from kafkaclient.spark.offsets import EARLIEST, LATEST, ByTime, OffsetRange, split
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.spark.offsets import OffsetLimit
    from kafkaclient.spark.options import ReadOptions

# The admin client accepts no fetch options.
_FOR_ADMIN = frozenset(
    name for declared in AdminConfig.OPTIONS.values() for name in declared.spellings
)


class Planner:
    """Reads partitions and offsets from the cluster. :meth:`close` also ends a failed start."""

    def __init__(self, options: ReadOptions, dialer: Dialer | None = None) -> None:
        self._options = options
        self._reader = Reader(options.client, dialer=dialer)
        shared = {name: value for name, value in options.client.items() if name in _FOR_ADMIN}
        self._admin = Admin(shared, dialer=dialer)

    async def start(self) -> None:
        await self._reader.start()
        await self._admin.start()

    async def close(self) -> None:
        await self._admin.close()
        await self._reader.close()

    async def partitions(self, *, ignore_missing: bool = False) -> list[TopicPartition]:
        """All subscribed partitions that exist now.

        Raises UnknownTopicError for a subscribed topic or assigned partition that does not exist.
        With ``ignore_missing`` those are left out.
        """
        subscription = self._options.subscription
        assigned, pattern = set(subscription.partitions), subscription.pattern
        wanted = {tp.topic for tp in assigned} | set(subscription.topics)
        names = None if pattern is not None or ignore_missing else wanted
        found = await self._admin.describe_topics(names)
        if pattern is not None:
            wanted = {name for name in found if pattern.fullmatch(name)}
        there = [
            TopicPartition(name, number)
            for name in sorted(wanted & found.keys())
            for number in range(len(found[name].partitions))
        ]
        gone = assigned - set(there)
        if gone and not ignore_missing:
            raise UnknownTopicError(
                f"option assign names {_list_partitions(gone)}, which do not exist"
            )
        return [tp for tp in there if not assigned or tp in assigned]

    async def offsets(
        self, partitions: Collection[TopicPartition], at: Literal["earliest", "latest"]
    ) -> dict[TopicPartition, int]:
        """The first offsets, or the end offsets. With ``isolation.level=read_committed`` open
        transactions are excluded."""
        return await self._reader.offsets(partitions, at)

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
        for time in set(times.values()):
            at_time = await self._reader.offsets([tp for tp in times if times[tp] == time], time)
            found |= {tp: offset for tp, offset in at_time.items() if offset is not None}
        without_record = times.keys() - found.keys()
        if without_record and limit.otherwise == "error":
            raise ConfigError(
                f"the options {side}Timestamp and {side}OffsetsByTimestamp found no record with "
                f"that timestamp or a later one in {_list_partitions(without_record)}; with "
                "startingOffsetsByTimestampStrategy=latest such partitions are read from their end"
            )
        return found | await self.offsets(without_record, "latest")


async def plan_batch(options: ReadOptions, dialer: Dialer | None = None) -> list[OffsetRange]:
    """The offset ranges of a batch read's tasks. Records written later are not included."""
    planner = Planner(options, dialer)
    try:
        await planner.start()
        partitions = await planner.partitions()
        start = await planner.resolve(options.start, partitions, "starting")
        end = await planner.resolve(options.end, partitions, "ending")
        earliest = await planner.offsets(partitions, "earliest")
        latest = await planner.offsets(partitions, "latest")
    finally:
        await planner.close()
    ranges = []
    for tp in partitions:
        for side, offset in (("startingOffsets", start[tp]), ("endingOffsets", end[tp])):
            if not earliest[tp] <= offset <= latest[tp]:
                options.report_loss(
                    f"{side} has offset {offset} for {tp}, which has {earliest[tp]} to {latest[tp]}"
                )
        begin = max(start[tp], earliest[tp])
        ranges.append(OffsetRange(*tp, begin, max(begin, min(end[tp], latest[tp]))))
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
