"""A task on this instance: its store, its position and its processing."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.streams.config import EARLIEST
from kafkaclient.streams.runtime.inputs import OffsetReset
from kafkaclient.streams.runtime.record_work import RecordWork
from kafkaclient.streams.runtime.slow_records import SlowRecords
from kafkaclient.streams.runtime.task_states import TRANSITIONS, TaskEvent, TaskState
from kafkaclient.streams.state.directory import UNKNOWN_CHANGELOG, ChangelogTopic, Checkpoint
from kafkaclient.streams.state.key_value_store import KeyValueStore
from kafkaclient.streams.state.rocks import RocksStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Executor, Future

    from kafkaclient.streams.runtime.writers import Writer
    from kafkaclient.streams.state.directory import TaskDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology

_log = logging.getLogger(__name__)

_CHECKPOINT_INTERVAL = 10_000  # changes; Java: OFFSET_DELTA_THRESHOLD_FOR_CHECKPOINT
_CHECKPOINT_INTERVAL_FAR_BEHIND = 200_000  # changes; larger, because each checkpoint is a flush
_CHECKPOINT_AGE = 0.25  # fraction of delete.retention.ms after which a checkpoint is renewed
_MIN_CHECKPOINT_AGE_S = 60.0  # a checkpoint is not renewed earlier, unless there are changes
_MAX_TURN_S = 0.01  # processing time after which the event loop runs other tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options that all tasks of an instance share."""

    commit_interval_s: float = 0.1
    transaction_timeout_s: float | None = None
    """None: there are no transactions."""
    session_timeout_s: float = math.inf
    auto_offset_reset: str = EARLIEST
    changelogs: Mapping[str, ChangelogTopic] = field(default_factory=dict)
    """Store -> its changelog topic."""
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


class Task:
    """A task with an open store. Methods that use the store raise
    :class:`~kafkaclient.errors.StateStoreError` on a disk error, and so does the constructor.

    Checkpoints are written in ``disk``'s threads, because a flush takes as long as the disk does
    and other tasks must not wait for it. The constructor and :meth:`close` may run there, too.
    """

    def __init__(
        self,
        task: TaskId,
        topology: Topology,
        directory: TaskDirectory,
        disk: Executor,
        options: TaskOptions | None = None,
    ) -> None:
        self.id = task
        self.source = topology.source(task)
        self.changelog = topology.changelog(task)
        self.state = TaskState.CREATED
        self.source_offset = 0
        """While RUNNING: offset of the next record to process."""
        self.lag: int | None = None
        """While following the changelog: records behind its end. None: not known yet."""
        self.writer: Writer | None = None
        self.is_dirty = False
        """Whether processed records are not committed yet."""
        self.commit_at = 0.0
        """While dirty: when the commit is due, by the clock."""
        options = self._options = options or TaskOptions()
        self._clock = options.clock
        self._processor = topology.processor(task)
        self._changelog_topic = options.changelogs.get(self._processor.store, UNKNOWN_CHANGELOG)
        self._directory = directory
        self._disk = disk
        self._work: RecordWork | None = None
        """While RUNNING."""
        self.slow_records = SlowRecords(
            task, self.source, options.transaction_timeout_s, options.session_timeout_s
        )
        self._checkpoint_write: Future[None] | None = None
        """The last checkpoint write, done or in progress."""
        now = options.wall()
        checkpoint = directory.load_or_wipe(self._processor.store, self._changelog_topic, now)
        self.position = 0 if checkpoint is None else checkpoint.offset
        """Offset of the next change of the changelog. The store contains all earlier changes."""
        self._current_at = now if checkpoint is None else checkpoint.current_at
        """When the store last had its whole changelog, in seconds since 1970. A new, empty store
        lacks no deletion, so it counts as current."""
        self._checkpoint_position, self._checkpoint_current_at = self.position, self._current_at
        self._restored_at: int | None = None
        self._restored = asyncio.Event()
        self._open()

    def __repr__(self) -> str:
        return f"<task {self.id} {self.state.value} at {self.position} of {self.changelog}>"

    def _open(self) -> None:
        self._rocks = RocksStore(self._directory.rocksdb)
        self.store = KeyValueStore(self._rocks)

    @property
    def is_active(self) -> bool:
        return self.state in (TaskState.RESTORING, TaskState.RUNNING)

    def advance(self, event: TaskEvent) -> None:
        """Enter the next state. Raises KeyError for an event that is impossible in this state."""
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if before is not self.state:
            _log.info("task %s is %s: %s", self.id, self.state.value, event.value)
        if before is TaskState.RUNNING and self.state is not TaskState.RUNNING:
            assert self._work is not None
            self._work.close()
            self._work = None
            self.store = KeyValueStore(self._rocks)
            self.is_dirty = False
            self.lag = None
            self._current_at = self._options.wall()
        if before is not TaskState.RUNNING and self.state is TaskState.RUNNING:
            assert self.writer is not None
            self._work = RecordWork(self.source, self._processor, self.store, self.writer)
            self.slow_records.restart()
        if self.state is not TaskState.RESTORING or event is TaskEvent.FAILED:
            self._restored_at = None

    # --- following the changelog ----------------------------------------------------------------

    def restore(self, changes: Iterable[tuple[Any, bytes | None]]) -> None:
        """Apply changes read from the changelog: keys with their values, None if deleted."""
        self._rocks.apply(changes)

    def reached(self, position: int, end: int | None) -> None:
        """All changes before ``position`` are applied. ``end``: the changelog's, None if
        unknown."""
        self.position = position
        if end is not None:
            self.lag = max(0, end - position)
            if self.lag == 0:
                self._current_at = self._options.wall()
        if self._restored_at is not None and position >= self._restored_at:
            self._restored.set()
        self._checkpoint_if_due()

    async def wait_until_restored(self, end: int) -> None:
        """Wait until all changes before ``end`` are applied. ``end`` is the changelog's end offset:
        a store with a later position belongs to another changelog, and starts over."""
        if self.position > end:
            self.start_over(0)
        self._restored_at = end
        self._restored.clear()
        self.reached(self.position, end)
        await self._restored.wait()

    def start_over(self, position: int) -> None:
        """Replace the store by an empty one: the changelog does not have its position."""
        _log.warning(
            "task %s: its changelog %s has no offset %d; the task is restored from offset %d",
            self.id,
            self.changelog,
            self.position,
            position,
        )
        self._wait_for_checkpoint()
        self._rocks.close()
        self._directory.wipe()
        self._current_at = self._options.wall()
        self._directory.load_or_wipe(self._processor.store, self._changelog_topic, self._current_at)
        self._open()
        self.position = self._checkpoint_position = position

    # --- processing -----------------------------------------------------------------------------

    async def process(self, records: Iterable[Any], keep_going: Callable[[], bool]) -> None:
        """Process records in order, until a commit is due or ``keep_going`` returns False. Every
        record taken from ``records`` is processed.

        Raises as :meth:`RecordWork.process`. The caller must then drop what was done since the last
        commit.
        """
        work = self._work
        assert self.writer is not None
        assert work is not None
        if not keep_going() or self.is_commit_due:
            return
        pause_at = self._clock() + _MAX_TURN_S
        for record in records:
            if self.is_dirty and self.slow_records.needs_own_transaction(record.offset):
                await self.commit()
            if not self.is_dirty:
                await self.writer.begin()
                self.is_dirty = True
                self.commit_at = self._clock() + self._options.commit_interval_s
                self.slow_records.begin(record.offset)
            if isinstance(record, OffsetReset):
                self.source_offset = record.offset  # committed with the records, or alone
                continue
            self.slow_records.start(record.offset, self._clock())
            await work.process(record)
            if self._work is not work:
                return  # the task stopped running, but the processor ignored its cancellation
            now = self._clock()
            self.slow_records.end(now)
            self.source_offset = record.offset + 1
            if now >= self.commit_at or not keep_going():
                return
            if now >= pause_at:
                await asyncio.sleep(0)
                pause_at = self._clock() + _MAX_TURN_S

    @property
    def is_commit_due(self) -> bool:
        """Whether there is something to commit, and the commit interval is over."""
        return self.is_dirty and self._clock() >= self.commit_at

    @property
    def commit_due_in(self) -> float | None:
        """Seconds until the commit is due. None: there is nothing to commit."""
        return max(0.0, self.commit_at - self._clock()) if self.is_dirty else None

    def check_slow_record(self) -> None:
        """Log the current record if it is slow. Call it several times per session timeout."""
        self.slow_records.check(self._clock())

    async def commit(self) -> None:
        """Write the changes, the emitted records and the offset, then update the store."""
        if not self.is_dirty:
            return
        assert self.writer is not None
        position = await self.writer.commit(
            self.store.changes, self.changelog, self.source, self.source_offset
        )
        self.store.commit()
        self.is_dirty = False
        if position is not None:
            self.position = position
        self._checkpoint_if_due()

    # --- the store on disk ----------------------------------------------------------------------

    def close(self) -> None:
        """Write everything to disk, with a checkpoint. Blocks for as long as the disk takes."""
        try:
            self._wait_for_checkpoint()
            self._write_checkpoint(self.position, self._current_at)
        finally:
            self._rocks.close()

    def refresh_checkpoint(self) -> None:
        """Renew the checkpoint before it gets too old to be valid, even without changes. Call it
        regularly. Raises the error of the previous checkpoint."""
        if self.state is TaskState.RUNNING:
            self._current_at = self._options.wall()
        self._checkpoint_if_due()

    def _checkpoint_if_due(self) -> None:
        """Start a checkpoint if it is due. Raises the error of the previous one."""
        if self._checkpoint_write is not None:
            if not self._checkpoint_write.done():
                return
            self._wait_for_checkpoint()
        far_behind = self.lag is not None and self.lag > _CHECKPOINT_INTERVAL
        every = _CHECKPOINT_INTERVAL_FAR_BEHIND if far_behind else _CHECKPOINT_INTERVAL
        aged_s = self._current_at - self._checkpoint_current_at
        is_old = aged_s > max(
            _MIN_CHECKPOINT_AGE_S, self._changelog_topic.delete_retention_s * _CHECKPOINT_AGE
        )
        if self.position - self._checkpoint_position >= every or is_old:
            self._checkpoint_position, self._checkpoint_current_at = self.position, self._current_at
            self._checkpoint_write = self._disk.submit(
                self._write_checkpoint, self.position, self._current_at
            )

    def _wait_for_checkpoint(self) -> None:
        checkpoint_write, self._checkpoint_write = self._checkpoint_write, None
        if checkpoint_write is not None:
            checkpoint_write.result()

    def _write_checkpoint(self, position: int, current_at: float) -> None:
        """Flush, and write the checkpoint. Later changes may be flushed, too: that is correct."""
        self._rocks.flush()
        self._directory.write_checkpoint(
            Checkpoint(self._processor.store, position, self._changelog_topic.topic_id, current_at)
        )
