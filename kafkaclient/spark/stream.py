"""Streaming reads: where a trigger begins and ends, and what its tasks read.

Spark keeps one of these for the life of a query, in a process of its own on the driver; its offsets
are spark-sql-kafka's JSON, ``{"topic": {"0": 23}}``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafkaclient.spark.loop import LoopThread
from kafkaclient.spark.offsets import (
    LATEST,
    ByOffset,
    Everywhere,
    OffsetRange,
    limited,
    offsets_from,
    offsets_to,
    split,
)
from kafkaclient.spark.planning import Planner, report_loss
from kafkaclient.spark.source import RangePartition, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kafkaclient.spark.options import ReadOptions
    from kafkaclient.types import TopicPartition

__all__ = ["KafkaStreamReader"]


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """As ``KafkaMicroBatchStream`` of spark-sql-kafka."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._connected: tuple[LoopThread, Planner] | None = None
        self._target: dict[TopicPartition, int] | None = None
        """Trigger.AvailableNow: nothing past it is read."""
        self._start: dict[TopicPartition, int] | None = None
        self._seen: dict[TopicPartition, int] = {}
        self._last_batch = float("-inf")
        self._start_is_a_guess = False

    # --- where a trigger begins and ends --------------------------------------------------------

    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Where the first batch begins. Spark asks when it looks for the end of that batch, and
        again when it plans it; the answers must be the same."""
        if self._start is None:
            self._start = self._run(self._initial)
            self._start_is_a_guess = _moves(self._options)
        return offsets_to(self._start)

    async def _initial(self, planner: Planner) -> dict[TopicPartition, int]:
        return await planner.at(self._options.start, await planner.partitions(), "starting")

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._run(self._written)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._start_is_a_guess = False
        begin = offsets_from(start) if start else {}
        end = self._target if self._target is not None else self._run(self._written)
        self._seen = end
        added = [tp for tp in end if tp not in begin]
        if added:
            begin |= self._run(lambda planner: planner.earliest(added))
        if self._waits_for_more(begin, end, limit):
            return start
        self._last_batch = time.monotonic()
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return offsets_to(end)

    def _waits_for_more(
        self, begin: dict[TopicPartition, int], end: dict[TopicPartition, int], limit: ReadLimit
    ) -> bool:
        least = self._options.min_offsets
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        if time.monotonic() - self._last_batch >= self._options.max_delay_s:
            return False
        return sum(max(0, end[tp] - begin[tp]) for tp in end) < least

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return offsets_to(self._seen) or None

    async def _written(self, planner: Planner) -> dict[TopicPartition, int]:
        return await planner.latest(await planner.partitions(may_be_gone=True))

    # --- what its tasks read --------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        fail = self._options.fail_on_data_loss
        begin, until = offsets_from(start) if start else {}, offsets_from(end) if end else {}
        if self._start_is_a_guess:
            report_loss(
                "the query was stopped in its first batch, and its checkpoint does not have where "
                "that began (startingOffsets=latest means something else by now). Start with a new "
                "checkpoint, with startingOffsets as JSON if no record may be missed",
                fail=fail,
            )
        for tp in sorted(begin.keys() - until.keys()):
            report_loss(f"partition {tp} is gone, which had been read to {begin[tp]}", fail=fail)
        added = [tp for tp in until if tp not in begin]
        if added:
            first = self._run(lambda planner: planner.earliest(added))
            for tp in (tp for tp in sorted(added) if first[tp] > 0):
                report_loss(f"the new partition {tp} begins at offset {first[tp]}", fail=fail)
            begin |= first
        ranges = []
        for tp, offset in sorted(until.items()):
            if offset < begin[tp]:
                report_loss(f"partition {tp} ends at {offset}, and had {begin[tp]}", fail=fail)
            ranges.append(OffsetRange(*tp, begin[tp], offset))
        pieces = split(ranges, self._options.min_partitions, self._options.max_records)
        return [RangePartition(each) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value)

    # --- connections, from the first question on ------------------------------------------------

    def _run(self, ask: Any) -> dict[TopicPartition, int]:
        if self._connected is None:
            loop, planner = LoopThread("kafkaclient-plan"), Planner(self._options)
            self._connected = loop, planner
            loop.run(planner.__aenter__())
        loop, planner = self._connected
        found: dict[TopicPartition, int] = loop.run(ask(planner))
        return found

    def stop(self) -> None:
        if self._connected is not None:
            loop, planner = self._connected
            self._connected = None
            loop.run(planner.close())
            loop.close()


def _moves(options: ReadOptions) -> bool:
    """Whether the start means another offset when it is asked for again."""
    start = options.start
    if isinstance(start, ByOffset):
        return LATEST in start.offsets.values()
    return start == Everywhere(LATEST) or getattr(start, "otherwise", None) == "latest"
