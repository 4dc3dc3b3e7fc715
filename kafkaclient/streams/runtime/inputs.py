"""Reads the input partitions of the running tasks."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkaclient.errors import (
    FetchTimeoutError,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from kafkaclient.reader.batch import FetchedRecord
from kafkaclient.streams.config import LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from uuid import UUID

    from kafkaclient.reader.reader import Reader
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

_MAX_ROWS = 5_000  # per take: a few ms of event loop time
_MAX_PARTITION_ROWS = 1_000  # per take
_MAX_PARTITION_BYTES = 1024 * 1024  # per take, about


class OffsetReset(NamedTuple):
    """Comes in place of a record: the log has no record at the task's offset, so the task continues
    at ``offset`` (``auto.offset.reset``), in the topic with this id (None: not known)."""

    topic: str
    offset: int
    topic_id: UUID | None = None


Row: TypeAlias = FetchedRecord | OffsetReset


class _Input:
    """An input partition; ``rows`` are fetched and not yet taken."""

    def __init__(self) -> None:
        self.is_held = True
        """Whether the reading is paused: also while there are rows, or nobody wants them."""
        self.rows: Iterator[FetchedRecord] | None = None
        self.most_rows = _MAX_PARTITION_ROWS
        """How many rows of the last batch have about ``_MAX_PARTITION_BYTES``."""


class Inputs:
    """All input partitions in one read. Each partition has one task, which decides where it begins,
    and says by ``wanted`` when it has room for records. ``internal_topics`` always begin at their
    first offset: nothing in them is older than the application (Kafka Streams does the same).
    ``partitions``: input topic -> its number of partitions when the instance started."""

    def __init__(
        self,
        reader: Reader,
        auto_offset_reset: str,
        clock: Callable[[], float],
        internal_topics: Collection[str] = (),
        partitions: Mapping[str, int] | None = None,
    ) -> None:
        self._reader = reader
        self._reading = reader.read({}, headers=True)
        self._auto_offset_reset = auto_offset_reset
        self._internal_topics = internal_topics
        self._partitions = partitions or {}
        self._clock = clock
        self._inputs: dict[TopicPartition, _Input] = {}
        """In the order of their turns."""
        self._woken = False

    def begins_at_end(self, partition: TopicPartition) -> bool:
        """Whether a task without offset in the log begins behind the last record. A partition that
        was added while this instance ran has no record that is older than the application."""
        topic, number = partition
        is_new = topic in self._partitions and number >= self._partitions[topic]
        return self._auto_offset_reset == LATEST and not (topic in self._internal_topics or is_new)

    async def beginning(self, partition: TopicPartition) -> int:
        """The first offset of any partition. Raises as :meth:`.Reader.offsets`."""
        return (await self._reader.offsets([partition], at="earliest"))[partition]

    async def topic_ids(self, topics: Collection[str]) -> dict[str, UUID]:
        """The ids that the topics have now, as far as they are known. Raises as
        :meth:`.Reader.list_topics`."""
        found = await self._reader.list_topics(topics)
        return {name: each.topic_id for name, each in found.items() if each.topic_id is not None}

    def add(self, partition: TopicPartition, offset: int, topic_id: UUID | None = None) -> None:
        """Read a partition, when it is wanted. ``topic_id``: as for :meth:`.Reading.add`."""
        self._reading.add(partition, offset, paused=True, topic_id=topic_id)
        self._inputs[partition] = _Input()
        self.wake()

    def remove(self, partition: TopicPartition) -> None:
        """Read a partition no more, and forget its fetched records. Does nothing if it is not
        read."""
        if self._inputs.pop(partition, None) is not None:
            self._reading.remove(partition)

    def most_rows(self, partition: TopicPartition) -> int:
        """How many of the partition's records are taken at once: fewer if they are large."""
        return self._inputs[partition].most_rows

    def wake(self) -> None:
        """Make the current :meth:`take` return, because other partitions may be wanted."""
        self._woken = True
        self._reading.wake()

    async def take(
        self, wanted: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, list[Row]]:
        """Records of the wanted partitions, in the order of each log. Empty after ``timeout_s`` or
        :meth:`wake`. Await it directly: then no partition is removed between the fetch and the
        caller.

        A partition that cannot be fetched is tried again and again, with a warning. A topic that
        was deleted and created again is read from its beginning.

        Raises KafkaError if a partition must not or cannot be read, such as AuthorizationError and
        UnreadableBatchError.
        """
        self._woken = False
        until = self._clock() + timeout_s
        while True:
            has_rows = self._hold_others(wanted)
            await self._reading.wait(0 if has_rows else max(0.0, until - self._clock()))
            found: dict[TopicPartition, list[Row]] = {}
            self._restart_failed(wanted, found)  # raises before records are taken
            self._take_rows(wanted, found)
            if found or self._woken or self._clock() >= until:
                return found

    def _hold_others(self, wanted: Collection[TopicPartition]) -> bool:
        """Fetch only what is wanted and not there yet; returns whether wanted rows are there."""
        found = False
        for partition, each in self._inputs.items():
            is_wanted = partition in wanted
            found |= is_wanted and each.rows is not None
            self._hold(partition, each, not is_wanted or each.rows is not None)
        return found

    def _hold(self, partition: TopicPartition, each: _Input, held: bool) -> None:
        if each.is_held is not held:
            each.is_held = held
            (self._reading.pause if held else self._reading.resume)(partition)

    def _take_rows(
        self, wanted: Collection[TopicPartition], found: dict[TopicPartition, list[Row]]
    ) -> None:
        room = _MAX_ROWS
        for partition, each in list(self._inputs.items()):
            if room <= 0:
                return
            if each.rows is not None and partition in wanted:
                room -= self._take_some(partition, each, found)
        while room > 0 and (batch := self._reading.take()) is not None:
            each = self._inputs[batch.topic_partition]
            each.rows = iter(batch)
            fitting = _MAX_PARTITION_BYTES * len(batch) // max(1, batch.content_bytes)
            each.most_rows = min(_MAX_PARTITION_ROWS, max(1, fitting))
            room -= self._take_some(batch.topic_partition, each, found)

    def _take_some(
        self, partition: TopicPartition, each: _Input, found: dict[TopicPartition, list[Row]]
    ) -> int:
        assert each.rows is not None
        rows = list[Row](islice(each.rows, each.most_rows))
        if len(rows) < each.most_rows:
            each.rows = None
        self._hold(partition, each, True)  # until the next take
        self._inputs[partition] = self._inputs.pop(partition)  # the others have their turns first
        if rows:
            found[partition] = rows
        return len(rows)

    def _restart_failed(
        self, wanted: Collection[TopicPartition], found: dict[TopicPartition, list[Row]]
    ) -> None:
        for partition, error in self._reading.errors.items():
            each = self._inputs[partition]
            if each.rows is not None or partition not in wanted:
                continue
            offset = restart_offset(error, at_end=self.begins_at_end(partition))
            if offset is None:
                self._reading.seek(partition, self._reading.positions[partition])
            else:
                self._reading.seek(partition, offset)
                reset = OffsetReset(partition.topic, offset, self._reading.topic_id(partition))
                found.setdefault(partition, []).append(reset)


def restart_offset(error: KafkaError, *, at_end: bool) -> int | None:
    """Where to read a partition after ``error``, which is logged; None: at the same offset. Raises
    the error if reading again does not help."""
    offset: int
    match error:
        case LogTruncatedError(truncated_to=end):
            offset = end
        case OffsetOutOfRangeError(available=(first, end)):
            offset = end if at_end else first
        case UnknownTopicError():
            offset = 0  # all of the new topic is new; if this offset is gone, the next error says
        case FetchTimeoutError():
            _log.warning("%s. It is tried again", error)
            return None
        case _:
            raise error
    _log.warning("%s. The task continues at offset %d", error, offset)
    return offset
