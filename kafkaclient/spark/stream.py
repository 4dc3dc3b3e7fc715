"""Streaming reads: start and end offsets of a trigger, and the ranges of its tasks.

Spark keeps one reader for the life of a query, in a separate process on the driver. Its offsets are
spark-sql-kafka's JSON, ``{"topic": {"0": 23}}``, with the topics' ids.
"""

from __future__ import annotations

import logging
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafkaclient.spark.offsets import (
    LATEST,
    ByTime,
    ReadRange,
    created_again,
    limit_offsets,
    offsets_as_json,
    parse_offsets,
    split,
    topic_ids,
)
from kafkaclient.spark.source import read_range

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    import pyarrow as pa

    from kafkaclient.spark.client_cache import LoopThread
    from kafkaclient.spark.options import ReadOptions
    from kafkaclient.spark.planning import Planner
    from kafkaclient.types import TopicPartition

T = TypeVar("T")

_log = logging.getLogger(__name__)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Corresponds to ``KafkaMicroBatchStream`` of spark-sql-kafka."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._planning: tuple[LoopThread, Planner] | None = None
        self._target: dict[TopicPartition, int] | None = None
        """availableNow: where the query ends. None for other triggers."""
        self._latest: dict[TopicPartition, int] = {}
        self._last_batch_at = float("-inf")
        self._repeats_first = False
        """True once Spark has asked for the start of the first batch, until it asks for an end. If
        Spark plans a batch meanwhile, it repeats the first batch after a restart. The checkpoint
        has the end of that batch, but not its start."""

    def initialOffset(self) -> dict[str, Any]:
        """Start of the first batch. Spark calls this when it determines that batch's end, and again
        when it plans the batch. Both results must be the same."""
        return self._start

    @cached_property
    def _start(self) -> dict[str, Any]:
        found, start = self._run(lambda planner: planner.partitions()), self._options.start
        resolved = self._run(lambda planner: planner.resolve(start, found, "starting"))
        self._repeats_first = True
        return offsets_as_json(resolved, self._ids)

    @property
    def _ids(self) -> dict[str, str]:
        """The ids that the topics have now; empty if no topic was asked for yet."""
        return {} if self._planning is None else self._planning[1].topic_ids

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._run(lambda planner: planner.end_offsets())

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """End of the next batch. Spark stores it, then plans the batch. After a restart it plans
        the same batch again. So a lost partition ends the query here: while a batch is planned,
        it would also end each restart."""
        self._repeats_first = False
        begin = parse_offsets(start) if start else {}
        # Spark kills this process at the end of a query: the last commit must be done before.
        self._commit_to_group(begin, wait=begin == self._target)
        ids = topic_ids(start)
        end = self._run(lambda planner: planner.end_offsets(begin, ids))
        recreated = created_again(ids, self._ids)
        begin = self._continued(begin, recreated)
        for tp in sorted(begin.keys() & end.keys()):
            if end[tp] < begin[tp]:
                self._options.report_loss(_ends_early(tp, end[tp], begin[tp]))
        end = self._up_to_target(begin, end, recreated)
        for tp in sorted(begin.keys() - end.keys()):
            self._options.report_loss(f"partition {tp} is gone; it was read to offset {begin[tp]}")
        self._latest = end
        first = begin | self._log_starts(begin, end)
        if not recreated and self._waits_for_more(first, end, limit):
            return start
        self._last_batch_at = time.monotonic()
        if isinstance(limit, ReadMaxRows):
            end = limit_offsets(first, end, limit.max_rows)
        return offsets_as_json(end, self._ids)

    def _continued(
        self, offsets: dict[TopicPartition, int], recreated: set[str]
    ) -> dict[TopicPartition, int]:
        """The offsets without those of topics that were created again, which are reported."""
        for topic in sorted(recreated):
            self._options.report_loss(
                f"topic {topic} was deleted and created again",
                "the query's offsets mean other records now. Use a new checkpoint. With "
                "failOnDataLoss=false the new topic is read from its start",
            )
        return {tp: offset for tp, offset in offsets.items() if tp.topic not in recreated}

    def _up_to_target(
        self, begin: dict[TopicPartition, int], end: dict[TopicPartition, int], recreated: set[str]
    ) -> dict[TopicPartition, int]:
        """With availableNow the target, without partitions that are gone."""
        if self._target is None:
            return end
        target = {tp: offset for tp, offset in self._target.items() if tp in end}
        # Spark asks for the target before the start. With startingOffsets=latest the start may be
        # later in the log.
        is_before_start = any(begin[tp] > target.get(tp, -1) for tp in begin.keys() & end.keys())
        self._target = end if recreated or is_before_start else target
        return self._target

    def _waits_for_more(
        self, begin: dict[TopicPartition, int], end: dict[TopicPartition, int], limit: ReadLimit
    ) -> bool:
        least = self._options.min_offsets
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        if time.monotonic() - self._last_batch_at >= self._options.max_delay_s:
            return False
        return sum(max(0, end[tp] - begin[tp]) for tp in end) < least

    def commit(self, end: dict[str, Any]) -> None:
        """Spark calls it for a batch when it has planned the next one."""
        self._commit_to_group(parse_offsets(end) if end else {})

    def _commit_to_group(self, done: dict[TopicPartition, int], *, wait: bool = False) -> None:
        if done and self._options.group is not None:
            self._run(lambda planner: planner.commit_to_group(done, wait=wait))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return offsets_as_json(self._latest, self._ids) or None

    def _log_starts(
        self, begin: dict[TopicPartition, int], end: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The first offsets of partitions that are read from there: added and re-created ones."""
        new = end.keys() - begin.keys()
        return self._run(lambda planner: planner.offsets(new, "earliest")) if new else {}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        report_loss = self._options.report_loss
        begin, until = parse_offsets(start) if start else {}, parse_offsets(end) if end else {}
        if self._repeats_first and _start_can_move(self._options):
            report_loss(
                "the query was stopped in its first batch, and its checkpoint does not have the "
                "start of that batch (startingOffsets=latest means another offset now). Use a new "
                "checkpoint, with startingOffsets as JSON if no record may be skipped"
            )
        ids = topic_ids(end)
        if not self._ids:  # the batch is repeated after a restart: its topics may be others now
            self._run(lambda planner: planner.end_offsets(ids=ids))
        until = self._continued(until, created_again(ids, self._ids))
        again = created_again(topic_ids(start), ids)
        begin = {tp: offset for tp, offset in begin.items() if tp.topic not in again}
        new = self._log_starts(begin, until)
        for tp, first in sorted(new.items()):
            if first > 0:
                report_loss(f"the new partition {tp} begins at offset {first}")
        begin |= new
        # A partition with a start, but without an end, is not read. Either it is gone, which
        # latestOffset has reported; or it is newer than the first batch, which is repeated.
        ranges = [ReadRange(*tp, begin[tp], offset) for tp, offset in sorted(until.items())]
        for each in ranges:
            if each.end < each.start:
                report_loss(_ends_early(each.topic_partition, each.end, each.start))
        pieces = split(ranges, self._options.min_partitions, self._options.max_records)
        return [InputPartition(each) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value)

    def _run(self, plan: Callable[[Planner], Coroutine[Any, Any, T]]) -> T:
        if self._planning is None:
            # Only the process of the query plans; each task imports this module, too.
            from kafkaclient.spark.client_cache import LoopThread  # noqa: PLC0415
            from kafkaclient.spark.planning import Planner  # noqa: PLC0415

            loop, planner = self._planning = LoopThread("kafkaclient-plan"), Planner(self._options)
            loop.run(planner.start())
        loop, planner = self._planning
        return loop.run(plan(planner))

    def stop(self) -> None:
        """Logs errors: Spark also stops a reader that has failed, and must report that failure."""
        if self._planning is not None:
            (loop, planner), self._planning = self._planning, None
            with loop:
                try:
                    loop.run(planner.close())
                except Exception:  # noqa: BLE001
                    _log.exception("the connections of the query cannot be closed")


def _ends_early(tp: TopicPartition, end: int, begin: int) -> str:
    return f"partition {tp} ends at {end}, before the read begins, at {begin}"


def _start_can_move(options: ReadOptions) -> bool:
    """Whether the configured start may mean another offset later."""
    start = options.start
    if isinstance(start, ByTime):
        return start.otherwise == "latest"
    return start.offsets == LATEST or (
        not isinstance(start.offsets, int) and LATEST in start.offsets.values()
    )
