"""The partitions that a consumer has: their positions, what is in hand, and what is finished."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.consumer.records import Rows
from kafkaclient.errors import ConsumerStateError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kafkaclient.reader.reading import Reading


class PartitionState(Enum):
    """::

    ADDED --start--> STARTING --begin--> READING --reset--> STARTING
    ADDED, STARTING --seek--> READING
    (any) --leave--> LEAVING;  (any) --remove--> (gone)
    """

    ADDED = "the rebalance listener may decide where it begins"
    STARTING = "its position is not known yet"
    READING = "its records are fetched and handed out"
    LEAVING = "it is given up once what is in hand is finished"


class Partition:
    """An assigned partition. A new assignment of the same partition is another object, so that
    ``done()`` of an older record has no effect."""

    def __init__(self, topic_partition: TopicPartition, on_done: Callable[[], None]) -> None:
        self.topic_partition = topic_partition
        self.state = PartitionState.ADDED
        self.paused = False
        self.is_new = False
        """Whether it was created while the consumer was in its group."""
        self.ignores_commits = False
        """While STARTING: whether to begin where ``auto.offset.reset`` says."""
        self.committed: int | None = None
        """The offset that this consumer knows to be committed."""
        self.unfinished: dict[int, None] = {}
        """Offsets of records that end with ``done()``, in order."""
        self.rows: Rows | None = None
        """The records that are handed out now."""
        self._position: int | None = None
        self._on_done = on_done

    @property
    def position(self) -> int | None:
        """The offset behind what was handed out; None while it is not known."""
        return self._position if self.rows is None else self.rows.position

    @property
    def finished(self) -> int | None:
        """The offset up to which everything is finished: what may be committed."""
        if self.unfinished:
            return next(iter(self.unfinished))
        return self._position if self.rows is None else self.rows.finished

    @property
    def has_hand(self) -> bool:
        return bool(self.unfinished) or (self.rows is not None and self.rows.has_hand)

    def done(self, offset: int) -> None:
        """A record is finished, see :meth:`.Record.done`."""
        if self.unfinished:
            self.unfinished.pop(offset, None)
        if self.rows is not None:
            self.rows.finish_record(offset)
        if self.state is PartitionState.LEAVING:
            self._on_done()

    def move(self, position: int | None) -> None:
        """Nothing of what was handed out counts any more."""
        if self.rows is not None:
            self.rows.cut()
            self.rows = None
        self.unfinished = {}  # a new object: rows that are handed out still write to the other one
        self._position = position

    def skip_to(self, position: int) -> None:
        """There are no visible records before this offset."""
        self._position = position

    def end_rows(self) -> None:
        """All records of the rows were handed out, and are finished or among ``unfinished``."""
        if self.rows is not None:
            self.rows.finish()
            self._position, self.rows = self.rows.position, None


class Partitions:
    """Owns the assigned partitions and their states, and the read that fetches them.

    ``on_starting`` is called when there is a partition whose position must be found, ``on_rows``
    with the topic, records and bytes that are about to be handed out.
    """

    def __init__(
        self,
        reading: Reading,
        on_starting: Callable[[], None],
        on_rows: Callable[[str, int, int], None],
    ) -> None:
        self._reading = reading
        self._on_starting = on_starting
        self._on_rows = on_rows
        self._all: dict[TopicPartition, Partition] = {}
        self._current: Partition | None = None
        """The partition whose rows are handed out."""
        self._finished = asyncio.Event()
        self._takes = 0
        self.given_up_in_hand: TopicPartition | None = None
        """A partition that was lost while a record of it was in hand, until the next step."""

    def __contains__(self, where: object) -> bool:
        return where in self._all

    def __getitem__(self, where: tuple[str, int]) -> Partition:
        """Raises ConsumerStateError if the partition is not assigned."""
        found = self._all.get(TopicPartition(*where))
        if found is None:
            raise ConsumerStateError(
                f"{TopicPartition(*where)} is not assigned to this consumer now"
            )
        return found

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions, without those that are given up."""
        leaving = PartitionState.LEAVING
        return frozenset(tp for tp, each in self._all.items() if each.state is not leaving)

    @property
    def all(self) -> frozenset[TopicPartition]:
        return frozenset(self._all)

    @property
    def starting(self) -> list[Partition]:
        return [each for each in self._all.values() if each.state is PartitionState.STARTING]

    # --- transitions ------------------------------------------------------------------------------

    def add(
        self,
        partitions: Iterable[TopicPartition],
        is_new: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        """Partitions were assigned; ``is_new``: see :meth:`.Subscription.is_new`."""
        for where in partitions:
            partition = self._all[where] = Partition(where, self._finished.set)
            partition.is_new = is_new(where)

    def start(self, partitions: Iterable[TopicPartition]) -> None:
        """Each begins when its position is known, unless it was sought."""
        for where in partitions:
            partition = self._all.get(where)
            if partition is not None and partition.state is PartitionState.ADDED:
                partition.state = PartitionState.STARTING
        self._on_starting()

    def begin(self, partition: Partition, offset: int) -> None:
        """The position of a partition is known. Does nothing if it was sought, or given up,
        meanwhile."""
        where, begins = partition.topic_partition, (PartitionState.ADDED, PartitionState.STARTING)
        if self._all.get(where) is partition and partition.state in begins:
            partition.move(offset)
            partition.state = PartitionState.READING
            self._reading.add(where, offset, paused=partition.paused)

    def seek(self, where: tuple[str, int], offset: int) -> None:
        """Continue at another offset."""
        partition = self[where]
        if partition.state is PartitionState.READING:
            self._reading.seek(where, offset)
            partition.move(offset)
        elif partition.state is PartitionState.LEAVING:
            raise ConsumerStateError(f"{partition.topic_partition} is being given up: no seek")
        else:
            self.begin(partition, offset)

    def reset(self, where: tuple[str, int]) -> None:
        """Find the position again, where ``auto.offset.reset`` says."""
        partition = self[where]
        if partition.state is PartitionState.READING:
            self._reading.remove(where)
            partition.move(None)
            partition.state = PartitionState.STARTING
        partition.ignores_commits = True
        self._on_starting()

    def fetch_again(self, where: TopicPartition) -> None:
        """Go on at the same position. What is in hand, and what is unfinished, stays so."""
        position = self[where].position
        assert position is not None
        self._reading.seek(where, position)

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these partitions."""
        for where in partitions:
            partition = self._all.get(where)
            if partition is None:
                continue
            if partition.state is PartitionState.READING:
                self._reading.remove(where)
            partition.state = PartitionState.LEAVING
            if partition.rows is not None:
                partition.rows.cut()

    async def wait_finished(self, partitions: Collection[TopicPartition]) -> None:
        """Wait until nothing of these partitions is in hand, or they are gone."""
        while any(where in self._all and self._all[where].has_hand for where in partitions):
            self._finished.clear()
            await self._finished.wait()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions are given up, or lost. Records in hand belong to nothing any more."""
        for where in partitions:
            partition = self._all.pop(where, None)
            if partition is None:
                continue
            if partition.has_hand:
                self.given_up_in_hand = where
            if partition.state is PartitionState.READING:
                self._reading.remove(where)
            partition.move(None)
        self._finished.set()

    def pause(self, where: tuple[str, int]) -> None:
        """Hand out nothing more of the partition until :meth:`resume`."""
        partition = self[where]
        partition.paused = True
        if partition.state is PartitionState.READING:
            self._reading.pause(where)
            if partition.rows is not None:  # the rest is fetched again
                partition.rows.cut()

    def resume(self, where: tuple[str, int]) -> None:
        partition = self[where]
        partition.paused = False
        if partition.state is PartitionState.READING:
            self._reading.resume(where)

    # --- what is handed out -----------------------------------------------------------------------

    def take(self, *, tracked: bool) -> Rows | None:
        """Further records, of one partition; None if none were fetched. All records before are
        finished, apart from the ``tracked`` ones."""
        self.step_past()
        batch = self._reading.take()
        if batch is None:
            self._skip_invisible()
            return None
        partition = self._all[batch.topic_partition]
        unfinished = partition.unfinished if tracked else None
        rows = partition.rows = Rows(batch, partition, unfinished)
        self._current = partition
        self._takes += 1
        self._on_rows(batch.topic, len(batch), batch.content_bytes)
        return rows

    def _skip_invisible(self) -> None:
        """Positions go behind offsets without visible records: transaction markers, aborted and
        compacted records."""
        for where, position in self._reading.positions.items():
            partition = self._all[where]
            if partition.rows is None and position > (partition.position or 0):
                partition.skip_to(position)

    def step_past(self) -> None:
        """The loop has stepped past what was in hand."""
        partition, self._current = self._current, None
        self.given_up_in_hand = None
        if partition is None or (rows := partition.rows) is None:
            return
        partition.end_rows()
        if partition.state is PartitionState.READING and rows.position != rows.batch.next_offset:
            self._reading.seek(partition.topic_partition, rows.position)  # it was paused meanwhile
        self._finished.set()

    def begin_loop(self, *, tracked: bool, whole: bool) -> Rows | None:
        """A loop begins, over ``whole`` batches or over records. Returns the rows of which records
        are left, or in hand: the loop begins with these."""
        partition = self._current
        if partition is None or (rows := partition.rows) is None:
            return None
        rows.step_back()
        if rows.is_tracked is tracked and (rows.is_untouched or not whole):
            return rows
        self._rewind(partition, rows)
        return None

    def _rewind(self, partition: Partition, rows: Rows) -> None:
        """Forget the rows. What is left of them is fetched again."""
        self._current = None
        unfinished = partition.unfinished
        partition.move(rows.position)
        partition.unfinished = unfinished
        if partition.state is PartitionState.READING:
            self._reading.seek(partition.topic_partition, rows.position)

    def finish_hand(self) -> None:
        """What is in hand is finished, unless its records end with ``done()``."""
        if self._current is not None and self._current.rows is not None:
            self._current.rows.finish()
            self._finished.set()

    @property
    def mark(self) -> tuple[int, int]:
        """Changes with each step."""
        rows = None if self._current is None else self._current.rows
        return self._takes, -1 if rows is None else rows.position

    def finished_offsets(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, int]:
        """What may be committed, where it is not committed yet."""
        found = {}
        for where in self._all if partitions is None else partitions:
            partition = self._all.get(where)
            if partition is None:
                continue
            offset = partition.finished
            if offset is not None and offset != partition.committed:
                found[where] = offset
        return found

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for where, offset in offsets.items():
            if where in self._all:
                self._all[where].committed = offset
