"""The partitions that a consumer has, their states, and the records that are handed out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.consumer.partition import Partition, PartitionState
from kafkaclient.consumer.records import Rows
from kafkaclient.errors import AuthorizationError, ConsumerStateError
from kafkaclient.topic_names import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from kafkaclient.consumer.records import Record
    from kafkaclient.errors import KafkaError
    from kafkaclient.reader.batch import FetchedBatch
    from kafkaclient.reader.reading import Reading
    from kafkaclient.types import TopicPartition


class Partitions:
    """Owns the assigned partitions and their states, and the read that fetches them.

    ``on_starting`` is called when a partition's position must be found, ``on_rows`` with a batch
    before it is handed out.
    """

    def __init__(
        self,
        reading: Reading,
        on_starting: Callable[[], None],
        on_rows: Callable[[FetchedBatch], None],
    ) -> None:
        self._reading = reading
        self._on_starting = on_starting
        self._on_rows = on_rows
        self._all: dict[TopicPartition, Partition] = {}
        self._current: Partition | None = None
        """The partition whose rows a loop hands out."""
        self._held: list[Partition] = []
        """The partitions whose rows polls hand out, or in which they have rows in hand."""
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        self._changed = asyncio.Event()
        self._takes = 0
        self.given_up_in_hand: TopicPartition | None = None
        """A partition that was lost while a record of it was in hand, until the next step."""
        self._complaint: KafkaError | None = None
        """What the next step raises, once."""
        self._topic_ids: dict[TopicPartition, UUID] = {}
        """The topics that were read last, also of partitions that are given up."""

    def __contains__(self, where: object) -> bool:
        return where in self._all

    def __getitem__(self, where: tuple[str, int]) -> Partition:
        """Raises ConsumerStateError if the partition is not assigned."""
        partition = partition_of(where)
        found = self._all.get(partition)
        if found is None:
            raise ConsumerStateError(f"{partition} is not assigned to this consumer now")
        return found

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions, without those that are given up."""
        leaving = PartitionState.LEAVING
        return frozenset(tp for tp, each in self._all.items() if each.state is not leaving)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, each in self._all.items() if each.paused)

    @property
    def all(self) -> frozenset[TopicPartition]:
        return frozenset(self._all)

    @property
    def starting(self) -> list[Partition]:
        """The partitions whose position is to be found."""
        starting = PartitionState.STARTING
        return [each for each in self._all.values() if each.state is starting and not each.error]

    @property
    def denials(self) -> dict[TopicPartition, KafkaError]:
        """The partitions that may not be read, as of the last answer, and why."""
        found: dict[TopicPartition, KafkaError] = {
            where: error
            for where, error in self._reading.errors.items()
            if isinstance(error, AuthorizationError)
        }
        for where, partition in self._all.items():
            if partition.denied is not None:
                error, last_fetch = partition.denied
                if self._reading.last_fetch(where) is last_fetch:
                    found[where] = error
        return found

    async def changed(self) -> None:
        """Wait until a position is known, partitions are removed, or :meth:`notify` is called."""
        await self._changed.wait()

    def notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # --- transitions ------------------------------------------------------------------------------

    def add(
        self,
        partitions: Iterable[TopicPartition],
        is_new: Callable[[TopicPartition], bool] = lambda _: False,
        first_id: Callable[[str], UUID | None] = lambda _: None,
    ) -> None:
        """Partitions were assigned; ``is_new`` and ``first_id``: see :class:`.Subscription`."""
        for where in partitions:
            partition = self._all[where] = Partition(where, self._finished.set, self._loop)
            self._topic_ids.pop(where, None)
            partition.is_new = is_new(where)
            partition.first_topic_id = first_id(where.topic)

    def start(self, partitions: Iterable[TopicPartition]) -> None:
        """Each begins when its position is known, unless it was sought."""
        for where in partitions:
            partition = self._all.get(where)
            if partition is not None and partition.state is PartitionState.ADDED:
                partition.state = PartitionState.STARTING
        self._on_starting()

    def begin(self, partition: Partition, offset: int, topic_id: UUID | None = None) -> None:
        """The position of a partition is known, in the topic with this id (None: not known). Does
        nothing if it was sought, or given up, meanwhile."""
        where, begins = partition.topic_partition, (PartitionState.ADDED, PartitionState.STARTING)
        if self._all.get(where) is partition and partition.state in begins:
            partition.move(offset)
            # raises if it is closed
            self._reading.add(where, offset, paused=partition.paused, topic_id=topic_id)
            self._note_topic(where)
            partition.state = PartitionState.READING
            self.notify()

    def fail(self, partition: Partition, error: KafkaError) -> None:
        """The position of a partition cannot be found: the next step raises the error."""
        if partition.state is PartitionState.STARTING:
            partition.error = error
            self._reading.wake()
            self.notify()

    def complain(self, error: KafkaError, denied: Iterable[TopicPartition] = ()) -> None:
        """The next step raises the error, for which these partitions may not be read. Positions
        that are not known are found again then."""
        self._complaint = error
        for where in denied:
            self[where].denied = error, self._reading.last_fetch(where)
        self._reading.wake()
        self.notify()

    def raise_error(self, wanted: Collection[TopicPartition]) -> None:
        """Raise the complaint, or the error of one of these partitions (empty: of all), if there is
        one, and find its position again."""
        if self._complaint is not None:
            complaint, self._complaint = self._complaint, None
            self._on_starting()
            raise complaint
        for where, partition in self._all.items():
            error = partition.error
            if error is not None and (not wanted or where in wanted):
                partition.error = None
                self._on_starting()
                raise error

    def seek(self, where: tuple[str, int], offset: int) -> None:
        """Continue at another offset."""
        partition = self[where]
        if partition.state is PartitionState.READING:
            self._reading.seek(where, offset)
            partition.move(offset)
            if not partition.paused:
                self._reading.resume(where)
            self.notify()
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

    def begin_again(self, where: tuple[str, int]) -> None:
        """The topic was created again: find the position in the new one, of which all is new."""
        self.reset(where)
        partition = self[where]
        partition.is_new = partition.is_recreated = True
        partition.ignores_commits = False

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
        self.notify()

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
        if partition.state is PartitionState.READING and not partition.is_held:
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
        self._note_topic(batch.topic_partition)
        unfinished = partition.unfinished if tracked else None
        rows = partition.rows = Rows(batch, partition, unfinished)
        self._current = partition
        self._takes += 1
        self._on_rows(batch)
        return rows

    def _skip_invisible(self) -> None:
        """Positions go behind offsets without visible records: transaction markers, aborted and
        compacted records."""
        for where, position in self._reading.positions.items():
            partition = self._all[where]
            if partition.rows is None and position > (partition.position or 0):
                partition.skip_to(position)
                self._note_topic(where)

    def _note_topic(self, where: TopicPartition) -> None:
        if (topic_id := self._reading.topic_id(where)) is not None:
            self._topic_ids[where] = topic_id

    def topic_id(self, where: TopicPartition) -> UUID | None:
        """The id of the topic of which the finished offset is; None if nothing was read."""
        return self._topic_ids.get(where)

    def step_past(self) -> None:
        """The loop has stepped past what was in hand."""
        partition, self._current = self._current, None
        self.given_up_in_hand = None
        if partition is not None:
            self._end_rows(partition)
            self._finished.set()

    def _end_rows(self, partition: Partition) -> None:
        """All rows of the partition were handed out, or it was paused meanwhile."""
        where, rows = partition.topic_partition, partition.rows
        if rows is None:
            return
        partition.end_rows()
        if partition.state is PartitionState.READING:
            if rows.position != rows.batch.next_offset:
                self._reading.seek(where, rows.position)
            if not partition.paused:
                self._reading.resume(where)

    def begin_loop(self, *, tracked: bool, whole: bool) -> Rows | None:
        """A loop begins, over ``whole`` batches or over records. Returns the rows of which records
        are left, or in hand: the loop begins with these."""
        for held in self._held:
            if held.rows is not None:
                held.rows.step_back()
                self._rewind(held, held.rows)
        self._held = []
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
        unfinished, counted_to = partition.unfinished, partition.counted_to
        partition.move(rows.position)
        partition.unfinished, partition.counted_to = unfinished, counted_to
        if partition.state is PartitionState.READING:
            self._reading.seek(partition.topic_partition, rows.position)
            if not partition.paused:
                self._reading.resume(partition.topic_partition)

    def finish_polled(self, wanted: Collection[TopicPartition]) -> None:
        """What polls have handed out of these partitions (empty: of all) is finished. A loop's rows
        are forgotten, and fetched again."""
        looped, self._current = self._current, None
        if looped is not None and looped.rows is not None:
            looped.rows.step_back()
            self._rewind(looped, looped.rows)
        self.given_up_in_hand = None
        for partition in self._held:
            if partition.rows is not None and (not wanted or partition.topic_partition in wanted):
                partition.rows.finish()
                if not partition.rows.left:
                    self._end_rows(partition)
        self._held = [each for each in self._held if each.rows is not None]
        self._takes += 1
        self._finished.set()

    def poll(
        self, wanted: Collection[TopicPartition], most: int
    ) -> dict[TopicPartition, list[Record]]:
        """Up to ``most`` records of these partitions (empty: of all), as far as they were fetched.
        Rows of other partitions that were fetched are kept."""
        found: dict[TopicPartition, list[Record]] = {}
        waiting = iter([*self._held])
        while most > 0:
            partition = next(waiting, None) or self._hold()
            if partition is None:
                self._skip_invisible()
                break
            where = partition.topic_partition
            if partition.rows is not None and (not wanted or where in wanted):
                records = partition.rows.take(most)
                if records:
                    most -= len(records)
                    found[where] = records
        return found

    def _hold(self) -> Partition | None:
        """A partition with a further batch; None if none was fetched."""
        batch = self._reading.take()
        if batch is None:
            return None
        partition = self._all[batch.topic_partition]
        partition.rows, partition.is_held = Rows(batch, partition), True
        self._note_topic(batch.topic_partition)
        if partition not in self._held:
            self._held.append(partition)
        self._reading.pause(batch.topic_partition)
        self._on_rows(batch)
        return partition

    def finish_hand(self) -> None:
        """What is in hand is finished, unless its records end with ``done()``."""
        in_hand = self._held if self._current is None else [self._current]
        for partition in in_hand:
            if partition.rows is not None:
                partition.rows.finish()
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

    def unfinished(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The lowest offset, and the number, of records whose ``done()`` is to come."""
        found = {}
        for where in sorted(self._all if partitions is None else partitions):
            partition = self._all.get(where)
            if partition is not None and (offsets := partition.unfinished):
                found[where] = next(iter(offsets)), len(offsets)
        return found

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for where, offset in offsets.items():
            if where in self._all:
                self._all[where].committed = offset


def listed(partitions: Collection[TopicPartition]) -> str:
    """The first partitions, for a log message."""
    shown = ", ".join(map(str, sorted(partitions)[:10]))
    return f"{len(partitions)} partitions ({shown}{', ...' if len(partitions) > 10 else ''})"
