"""What a read asks the cluster before its tasks begin: which partitions, from where to where."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from kafkaclient.admin import Admin
from kafkaclient.config.admin import AdminConfig
from kafkaclient.errors import ConfigError, OffsetOutOfRangeError, UnknownTopicError
from kafkaclient.reader import Reader
from kafkaclient.spark.offsets import (
    EARLIEST,
    LATEST,
    ByOffset,
    ByTime,
    Everywhere,
    OffsetRange,
    split,
)
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.spark.offsets import Edge
    from kafkaclient.spark.options import ReadOptions

__all__ = ["Planner", "plan_batch", "report_loss"]

_log = logging.getLogger(__name__)

# What is about fetching, the admin client does not know.
_FOR_ADMIN = frozenset(
    name for declared in AdminConfig.OPTIONS.values() for name in declared.spellings
)


class Planner:
    """Asks the cluster for partitions and offsets. An asynchronous context manager."""

    def __init__(self, options: ReadOptions, dialer: Dialer | None = None) -> None:
        self._options = options
        self._reader = Reader(options.client, dialer=dialer)
        shared = {name: value for name, value in options.client.items() if name in _FOR_ADMIN}
        self._admin = Admin(shared, dialer=dialer)

    async def __aenter__(self) -> Self:
        try:
            await self._reader.start()
            await self._admin.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._admin.close()
        await self._reader.close()

    async def partitions(self, *, may_be_gone: bool = False) -> list[TopicPartition]:
        """All that are subscribed to, as the cluster has them now.

        Raises UnknownTopicError for a topic, and for a partition that is assigned, that is not
        there; with ``may_be_gone`` these are left out.
        """
        asked = self._options.subscription
        wanted = {tp.topic for tp in asked.partitions} | set(asked.topics)
        names = None if asked.pattern is not None or may_be_gone else wanted
        found = await self._admin.describe_topics(names)
        if asked.pattern is not None:
            wanted = {name for name in found if asked.pattern.fullmatch(name)}
        there = [
            TopicPartition(name, number)
            for name in sorted(wanted & found.keys())
            for number in range(len(found[name].partitions))
        ]
        if not asked.partitions:
            return there
        gone = set(asked.partitions) - set(there)
        if gone and not may_be_gone:
            raise UnknownTopicError(f"option assign names {_listed(gone)}, which do not exist")
        return [tp for tp in there if tp in set(asked.partitions)]

    async def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._reader.offsets(partitions, "earliest") if partitions else {}

    async def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """With ``isolation.level=read_committed`` where the oldest open transaction begins."""
        return await self._reader.offsets(partitions, "latest") if partitions else {}

    async def at(
        self, edge: Edge, partitions: Collection[TopicPartition], side: str
    ) -> dict[TopicPartition, int]:
        """The offsets that an option ``{side}Offsets`` or ``{side}...Timestamp`` stands for.

        Raises ConfigError if it does not say something of every partition, or names others, and if
        a partition has no record as young as asked for.
        """
        if isinstance(edge, ByTime):
            return await self._at_times(edge, partitions, side)
        if isinstance(edge, Everywhere):
            edge = ByOffset(dict.fromkeys(partitions, edge.offset))
        _check_complete(edge.offsets, partitions, f"{side}Offsets")
        offsets = dict(edge.offsets)
        begin = await self.earliest([tp for tp in offsets if offsets[tp] == EARLIEST])
        end = await self.latest([tp for tp in offsets if offsets[tp] == LATEST])
        return offsets | begin | end

    async def _at_times(
        self, edge: ByTime, partitions: Collection[TopicPartition], side: str
    ) -> dict[TopicPartition, int]:
        if isinstance(edge.times, int):
            times = dict.fromkeys(partitions, edge.times)
        else:
            times = dict(edge.times)
            _check_complete(times, partitions, f"{side}OffsetsByTimestamp")
        found: dict[TopicPartition, int | None] = {}
        for time in set(times.values()):
            found |= await self._reader.offsets([tp for tp in times if times[tp] == time], time)
        young = [tp for tp, offset in found.items() if offset is None]
        if young and edge.otherwise == "error":
            raise ConfigError(
                f"the options {side}Timestamp and {side}OffsetsByTimestamp found no record that is "
                f"as young in {_listed(young)}; with startingOffsetsByTimestampStrategy=latest "
                "such partitions are read from their end on"
            )
        told = {tp: offset for tp, offset in found.items() if offset is not None}
        return told | await self.latest(young)


async def plan_batch(options: ReadOptions, dialer: Dialer | None = None) -> list[OffsetRange]:
    """What the tasks of a batch read are to read; nothing that is written later."""
    async with Planner(options, dialer) as planner:
        partitions = await planner.partitions()
        start = await planner.at(options.start, partitions, "starting")
        end = await planner.at(options.end, partitions, "ending")
        kept = await planner.earliest(partitions)
        written = await planner.latest(partitions)
    ranges = []
    for tp in partitions:
        for side, offset in (("startingOffsets", start[tp]), ("endingOffsets", end[tp])):
            if not kept[tp] <= offset <= written[tp]:
                report_loss(
                    f"{side} has offset {offset} for {tp}, which has {kept[tp]} to {written[tp]}",
                    fail=options.fail_on_data_loss,
                )
        begin = max(start[tp], kept[tp])
        ranges.append(OffsetRange(*tp, begin, max(begin, min(end[tp], written[tp]))))
    return split(ranges, options.min_partitions, options.max_records)


def report_loss(what: str, *, fail: bool) -> None:
    """Raises OffsetOutOfRangeError, or only warns, as ``failOnDataLoss`` says."""
    if fail:
        raise OffsetOutOfRangeError(
            f"{what}: records may have been lost, because they were deleted (retention) before "
            "they were read, or the topic was deleted. With the option failOnDataLoss=false what "
            "is left is read (docs/spark.md)"
        )
    _log.warning("%s: records may have been lost; going on with what is left", what)


def _check_complete(
    given: Mapping[TopicPartition, int], partitions: Collection[TopicPartition], option: str
) -> None:
    missing, others = set(partitions) - given.keys(), given.keys() - set(partitions)
    if missing:
        raise ConfigError(
            f"option {option} must name every partition; {_listed(missing)} is missing"
            if len(missing) == 1
            else f"option {option} must name every partition; {_listed(missing)} are missing"
        )
    if others:
        raise ConfigError(
            f"option {option} names {_listed(others)}, not subscribed to or not there"
        )


def _listed(partitions: Collection[TopicPartition]) -> str:
    names = [str(tp) for tp in sorted(partitions)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
