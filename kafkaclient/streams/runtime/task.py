"""A task on this instance: its input partitions, its stores and its processing."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import StreamsError
from kafkaclient.streams.runtime.inputs import OffsetReset
from kafkaclient.streams.runtime.observer import Observer, TaskProgress
from kafkaclient.streams.runtime.outputs import Work
from kafkaclient.streams.runtime.record_work import Outputs, RecordWork
from kafkaclient.streams.runtime.task_store import TaskStore
from kafkaclient.streams.state_directory import UNKNOWN_CHANGELOG, ChangelogTopic
from kafkaclient.streams.tasks import TRANSITIONS, TaskEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from concurrent.futures import Executor
    from uuid import UUID

    from kafkaclient.streams.key_value_store import KeyValueStore
    from kafkaclient.streams.runtime.outputs import OutgoingRecord, Output
    from kafkaclient.streams.state_directory import TaskDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options that all tasks of an instance share."""

    commit_interval_s: float = 0.1
    session_timeout_s: float = math.inf
    changelogs: Mapping[str, ChangelogTopic] = field(default_factory=dict)
    """Store -> its changelog topic."""
    observer: Observer = field(default_factory=Observer)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


class _Source:
    """One input partition of a task."""

    __slots__ = (
        *("committed_offset", "dropped", "offset", "partition"),
        *("refused", "reset", "topic_id", "work"),
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.offset = 0
        """While RUNNING: offset of the next record to process."""
        self.topic_id: UUID | None = None
        """While RUNNING: the id of the topic that has this offset, if it is known."""
        self.reset: OffsetReset | None = None
        """Is about to change both."""
        self.committed_offset: int | None = None
        """The offset of the last commit of this instance."""
        self.refused: dict[int, Exception] = {}
        """Offset of an uncommitted record -> why a broker refused what was written for it."""
        self.dropped: list[int] = []
        """Offsets of uncommitted records that were skipped or became dead letters."""
        self.work: RecordWork | None = None
        """While RUNNING."""


class Task:
    """A task with open stores, if it has any. Methods that use the stores raise
    :class:`~kafkaclient.errors.StateStoreError` on a disk error, and so does the constructor. The
    constructor and :meth:`close` may run in one of ``disk``'s threads.
    """

    def __init__(
        self,
        task: TaskId,
        topology: Topology,
        directory: TaskDirectory,
        disk: Executor,
        output: Output,
        options: TaskOptions | None = None,
    ) -> None:
        options = self._options = options or TaskOptions()
        self.id = task
        self.state = TaskState.CREATED
        self.failures = 0
        """Since the last commit."""
        self._output = output
        self._clock = options.clock
        self._progress = TaskProgress(task, options.session_timeout_s)
        self._topology = topology
        self._subtopology = topology.subtopology(task)
        self._sources: dict[str, _Source] = {}
        self.task_stores: list[TaskStore] = []
        directory.prepare([store.name for store in self._subtopology.stores])
        try:
            for store, changelog in zip(
                self._subtopology.stores, topology.changelogs(task), strict=True
            ):
                self.task_stores.append(
                    TaskStore(
                        task,
                        store,
                        changelog,
                        options.changelogs.get(store.name, UNKNOWN_CHANGELOG),
                        directory.store(store.name),
                        disk,
                        options.wall,
                        output.max_change_bytes,
                    )
                )
        except BaseException:
            for opened in self.task_stores:
                opened.abandon()
            raise

    def __repr__(self) -> str:
        return f"<task {self.id} {self.state.value} at {self.offsets}, {self.task_stores}>"

    @property
    def stores(self) -> dict[str, KeyValueStore[Any, Any]]:
        """What the processors use, by name."""
        return {store.declared.name: store.view for store in self.task_stores}

    @property
    def sources(self) -> tuple[TopicPartition, ...]:
        """The input partitions of the last assignment as active task."""
        return tuple(each.partition for each in self._sources.values())

    @property
    def is_active(self) -> bool:
        return self.state.is_active

    @property
    def position(self) -> int:
        """Sum of the stores' positions in their changelogs."""
        return sum(store.position for store in self.task_stores)

    @property
    def lag(self) -> int | None:
        """While following the changelogs: records behind their ends, in sum. None: not known."""
        lags = [store.lag for store in self.task_stores]
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """While RUNNING: input partition -> offset of the next record to process."""
        return {each.partition: each.offset for each in self._sources.values()}

    @property
    def topic_ids(self) -> dict[TopicPartition, UUID | None]:
        """Of which topic the :attr:`offsets` are; None: not known."""
        return {each.partition: each.topic_id for each in self._sources.values()}

    @property
    def committed_offsets(self) -> dict[TopicPartition, int]:
        """The offsets of this instance's last commit; without inputs that it has not committed."""
        return {
            each.partition: each.committed_offset
            for each in self._sources.values()
            if each.committed_offset is not None
        }

    def take_sources(self, sources: Collection[TopicPartition]) -> None:
        """Read these input partitions from the next start on. Call it while not active.

        Raises StreamsError for a partition of a topic that the task's processors do not read.
        """
        known = {self._topology.topic_name(name) for name in self._subtopology.topics}
        if foreign := [source for source in sources if source.topic not in known]:
            raise StreamsError(
                f"the group's leader has given task {self.id} the input partition "
                f"{foreign[0].topic}-{foreign[0].partition}, whose topic no processor of the task "
                "reads here: give all instances the same processors, in the same order"
            )
        self._sources = {source.topic: _Source(source) for source in sources}

    def start_at(
        self,
        offsets: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, UUID] = MappingProxyType({}),
    ) -> None:
        """Begin, or continue, at these offsets of the input partitions, in the topics with these
        ids."""
        for partition, offset in offsets.items():
            source = self._sources[partition.topic]
            source.offset, source.reset = offset, None
            source.topic_id = topic_ids.get(partition.topic)

    def advance(self, event: TaskEvent) -> None:
        """Enter the next state. Raises KeyError for an event that is impossible in this state."""
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if before is not self.state:
            _log.info("task %s is %s: %s", self.id, self.state.value, event.value)
        if before is TaskState.RUNNING and self.state is not TaskState.RUNNING:
            self._stop_running()
        if not self.is_active:
            for source in self._sources.values():
                source.refused = {}
        if before is not TaskState.RUNNING and self.state is TaskState.RUNNING:
            self._start_running()
        if self.state is not TaskState.RESTORING or event is TaskEvent.FAILED:
            for store in self.task_stores:
                store.stop_waiting()

    def _start_running(self) -> None:
        outputs = Outputs(self._topology)
        stores = self.stores
        for processor in self._subtopology.processors:
            for topic in processor.topics:
                source = self._sources.get(self._topology.topic_name(topic.name))
                if source is not None:
                    source.dropped = []
                    source.work = RecordWork(
                        source.partition,
                        topic,
                        processor,
                        stores,
                        self._output,
                        outputs,
                        on_dropped=source.dropped.append,
                    )

    def _stop_running(self) -> None:
        self._options.observer.worked(self.id, self._progress)
        for source in self._sources.values():
            assert source.work is not None
            source.work.close()
            source.work = source.committed_offset = None
        self._progress.stop()
        for store in self.task_stores:
            store.drop_changes()
            store.lag = None
            store.mark_current()

    # --- processing -----------------------------------------------------------------------------

    async def process(
        self, record: Any
    ) -> tuple[Sequence[OutgoingRecord], TopicPartition, int] | None:
        """Process one record. Returns what it emitted, its partition, and the offset behind it, for
        :meth:`.Committer.add`. None: the task stopped.

        Raises as :meth:`RecordWork.process`. The caller must then drop what was done since the last
        commit.
        """
        source = self._sources[record.topic]
        work = source.work
        assert work is not None
        if record.__class__ is OffsetReset:
            # Committed with the records, or alone.
            source.reset = record
            return (), source.partition, record.offset
        self._progress.start(record, self._clock())
        if source.refused and record.offset in source.refused:
            emitted = await work.refused(record, source.refused[record.offset])
        else:
            emitted = await work.process(record)
        if source.work is not work:
            return None  # the processor ignored its cancellation
        self._progress.end(self._clock())
        return emitted, source.partition, record.offset + 1

    def record_done(self, source: TopicPartition, offset: int) -> None:
        """All that the task has done belongs to the next commit. ``offset``: of the next record of
        ``source`` to process."""
        done = self._sources[source.topic]
        done.offset = offset
        if done.reset is not None:
            done.topic_id, done.reset = done.reset.topic_id, None
        for store in self.task_stores:
            store.view.mark((source, offset))

    def writer(self, changelog: TopicPartition, key: bytes) -> tuple[TopicPartition, int] | None:
        """The input record of a large uncommitted change, as the arguments of its
        :meth:`record_done`. None: another task's, or not known."""
        for store in self.task_stores:
            if store.changelog == changelog:
                found: tuple[TopicPartition, int] | None = store.view.writer(key)
                return found
        return None

    def refuse(self, source: TopicPartition, offset: int, error: Exception) -> bool:
        """A broker refused what was written for the record before this offset. When the record is
        reached again, this is its error. Returns False if it was so already."""
        refused = self._sources[source.topic].refused
        is_new = offset - 1 not in refused
        refused.setdefault(offset - 1, error)
        return is_new

    def check_slow_record(self) -> None:
        """Log it if the event loop was blocked. Call it several times per session timeout."""
        self._progress.check(self._clock())

    def work(self) -> Work:
        """What to commit: everything up to the last :meth:`record_done`."""
        changes = {store.changelog: store.view.marked() for store in self.task_stores}
        return Work(self.offsets, changes, self.topic_ids)

    def on_committed(
        self, offsets: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]
    ) -> None:
        """These ``offsets`` are committed, with the changes of the last :meth:`work`.
        ``positions``: changelog -> offset behind the last change, unless there was no change or
        its offset is unknown."""
        self.failures = 0
        for partition, offset in offsets.items():
            source = self._sources[partition.topic]
            source.committed_offset = offset
            while source.dropped and source.dropped[0] < offset:
                self._progress.dropped += 1
                del source.dropped[0]
            if source.refused:
                source.refused = {o: e for o, e in source.refused.items() if o >= offset}
        self._options.observer.worked(self.id, self._progress)
        for store in self.task_stores:
            store.on_committed(positions.get(store.changelog))

    # --- the stores on disk ---------------------------------------------------------------------

    async def wait_until_restored(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until all stores have their changelogs before these end offsets."""
        await asyncio.gather(
            *(store.wait_until_restored(ends[store.changelog]) for store in self.task_stores)
        )

    def close(self) -> None:
        """Write everything to disk, with checkpoints. Blocks for as long as the disk takes."""
        with ExitStack() as stack:
            for store in self.task_stores:
                stack.callback(store.close)

    def refresh_checkpoint(self) -> None:
        """Renew the checkpoints before they get too old to be valid, even without changes. Call it
        regularly. Raises the error of a previous checkpoint."""
        for store in self.task_stores:
            if self.state is TaskState.RUNNING:
                store.mark_current()
            store.checkpoint_if_due()
