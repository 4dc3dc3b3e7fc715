"""One task's copy on this instance: its store, how far that is, and the work on it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.streams.config import EARLIEST
from kafkaclient.streams.runtime.record_work import RecordWork
from kafkaclient.streams.runtime.slow_records import SlowRecords
from kafkaclient.streams.runtime.task_states import TRANSITIONS, TaskEvent, TaskState
from kafkaclient.streams.state.checkpoint import UNKNOWN_CHANGELOG, ChangelogTopic, Checkpoint
from kafkaclient.streams.state.key_value_store import KeyValueStore
from kafkaclient.streams.state.rocks import RocksStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from kafkaclient.streams.runtime.writers import Writer
    from kafkaclient.streams.state.directory import TaskDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology

__all__ = ["Task", "TaskOptions"]

_log = logging.getLogger(__name__)

_CHECKPOINT_INTERVAL = 10_000
"""Changes: what has to be read again at most when the process is killed (Java:
``OFFSET_DELTA_THRESHOLD_FOR_CHECKPOINT``)."""
_CHECKPOINT_INTERVAL_FAR_BEHIND = 200_000
"""The same while it has further to go: every checkpoint is a flush."""
_CHECKPOINT_AGE = 0.25
"""The share of ``delete.retention.ms`` after which a checkpoint is written without changes."""


_MIN_CHECKPOINT_AGE_S = 60.0
"""Seconds after which a checkpoint is written without changes at the earliest."""
_MAX_TURN_S = 0.01
"""Seconds of processing after which other tasks of the event loop get their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """What all tasks of an instance have in common."""

    commit_interval_s: float = 0.1
    transaction_timeout_s: float | None = None
    """None: records are not written in transactions."""
    session_timeout_s: float = math.inf
    auto_offset_reset: str = EARLIEST
    changelogs: Mapping[str, ChangelogTopic] = field(default_factory=dict)
    """By store."""
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


class Task:
    """Created open. Raises :class:`~kafkaclient.errors.StateStoreError` when the store cannot be
    used; every method that touches it does.

    Checkpoints are written by ``disk``'s threads: the store is flushed for as long as the disk
    takes, and the other tasks do not wait for it. So may :meth:`close` be, and creating it.
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
        """While RUNNING: the next record to process."""
        self.fetched_from = 0
        """While RUNNING: where the consumer was told to fetch last. It returns records from before
        only when brokers do not have this offset any more."""
        self.lag: int | None = None
        """While it follows its changelog: records behind; None: not known yet."""
        self.writer: Writer | None = None
        self.is_dirty = False
        """Whether something was processed that is not committed."""
        self.commit_at = 0.0
        """While dirty: when a commit is due, by the clock."""
        self._options = options or TaskOptions()
        self._clock = self._options.clock
        self._processor = topology.processor(task)
        self._changelog_topic = self._options.changelogs.get(
            self._processor.store, UNKNOWN_CHANGELOG
        )
        self._directory = directory
        self._disk = disk
        self._work: RecordWork | None = None
        """While RUNNING."""
        self._slow = SlowRecords(
            task,
            self.source,
            self._options.transaction_timeout_s,
            self._options.session_timeout_s,
        )
        self._checkpoint_write: Future[None] | None = None
        """The checkpoint that is being written, or was written last."""
        now = self._options.wall()
        checkpoint = directory.prepare(self._processor.store, self._changelog_topic, now)
        self.position = 0 if checkpoint is None else checkpoint.offset
        """The next change of the changelog to apply; those before are in the store."""
        self._current_at = now if checkpoint is None else checkpoint.current_at
        """When the store last had all of its changelog, in seconds since 1970. An empty store needs
        none of the deletions from before."""
        self._checkpoint, self._checkpoint_current_at = self.position, self._current_at
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

    @property
    def is_running(self) -> bool:
        return self.state is TaskState.RUNNING

    @property
    def follows_changelog(self) -> bool:
        return self.state in (TaskState.RESTORING, TaskState.STANDBY)

    def advance(self, event: TaskEvent) -> None:
        """Raises KeyError for what cannot happen in this state."""
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if before is not self.state:
            _log.info("task %s: %s, %s from now on", self.id, event.value, self.state.value)
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
            self._slow.restart()
        if self.state is not TaskState.RESTORING or event is TaskEvent.FAILED:
            self._restored_at = None

    # --- following the changelog ----------------------------------------------------------------

    def restore(self, records: Sequence[Any]) -> None:
        """Apply changes as they were read from the changelog."""
        self._rocks.apply((record.key, record.value) for record in records)

    def reached(self, position: int, end: int | None) -> None:
        """All changes before ``position`` were applied; the changelog ends at ``end``, as far as is
        known."""
        self.position = position
        if end is not None:
            self.lag = max(0, end - position)
            if self.lag == 0:
                self._current_at = self._options.wall()
        if self._restored_at is not None and position >= self._restored_at:
            self._restored.set()
        self._checkpoint_if_far()

    async def wait_until_restored(self, end: int) -> None:
        """Wait until all changes before ``end`` are applied, which is where the changelog ends. A
        store with changes from beyond it is not of this changelog, and starts over."""
        if self.position > end:
            self.start_over(0)
        self._restored_at = end
        self._restored.clear()
        self.reached(self.position, end)
        await self._restored.wait()

    def start_over(self, position: int) -> None:
        """The changelog is not the one that the store was made from: forget the store."""
        _log.warning(
            "task %s: its changelog %s has no offset %d; restored from offset %d on",
            self.id,
            self.changelog,
            self.position,
            position,
        )
        self._wait_for_checkpoint()
        self._rocks.close()
        self._directory.wipe()
        self._current_at = self._options.wall()
        self._directory.prepare(self._processor.store, self._changelog_topic, self._current_at)
        self._open()
        self.position = self._checkpoint = position

    # --- processing -----------------------------------------------------------------------------

    async def process(self, records: Iterable[Any], keep_going: Callable[[], bool]) -> None:
        """Process records in order, until a commit is due, or until told to stop; those before
        :attr:`source_offset` were processed already. What was taken from ``records`` is processed,
        and not more is taken.

        Raises what :meth:`RecordWork.process` raises: what was done since the last commit has to be
        dropped then.
        """
        work = self._work
        assert self.writer is not None
        assert work is not None
        if not keep_going() or self.is_commit_due:
            return
        pause_at = self._clock() + _MAX_TURN_S
        for record in records:
            if record.offset < self.source_offset and not self._apply_offset_reset(record.offset):
                continue
            if self.is_dirty and self._slow.needs_own_transaction(record.offset):
                await self.commit()
            if not self.is_dirty:
                await self.writer.begin()
                self.is_dirty = True
                self.commit_at = self._clock() + self._options.commit_interval_s
                self._slow.begin(record.offset)
            self._slow.start(record.offset, self._clock())
            await work.process(record)
            if self._work is not work:
                return  # the task was given up, and the processor ignored it
            now = self._clock()
            self._slow.end(now)
            self.source_offset = record.offset + 1
            if now >= self.commit_at or not keep_going():
                return
            if now >= pause_at:
                await asyncio.sleep(0)
                pause_at = self._clock() + _MAX_TURN_S

    def _apply_offset_reset(self, offset: int) -> bool:
        """Whether the record at ``offset`` shows that the consumer went back (auto.offset.reset)
        because the partition ends before the task's offset. The task goes back, too."""
        if offset >= self.fetched_from:
            return False  # processed while it was fetched again
        _log.warning(
            "task %s: brokers have no offset %d of %s-%d any more: the topic was created again, or "
            "has lost records. The task goes on at offset %d (auto.offset.reset=%s)",
            *(self.id, self.source_offset, *self.source, offset),
            self._options.auto_offset_reset,
        )
        self.source_offset = self.fetched_from = offset
        return True

    @property
    def is_commit_due(self) -> bool:
        return self.is_dirty and self._clock() >= self.commit_at

    @property
    def commit_due_in(self) -> float | None:
        """Seconds; None: there is nothing to commit."""
        return max(0.0, self.commit_at - self._clock()) if self.is_dirty else None

    def check_slow_record(self) -> None:
        """Name the record at which the processor is, if it takes too long. To be called several
        times within the session's time-out, for as long as the event loop is not blocked."""
        self._slow.check(self._clock())

    def explain_error(self, error: Exception) -> Exception:
        """What is to be told in place of an error of :meth:`process` or :meth:`commit`."""
        return self._slow.explain_error(error)

    async def commit_first_offset(self, offset: int) -> None:
        """Make ``offset`` the task's committed one: nothing was committed before."""
        assert self.writer is not None
        await self.writer.begin()
        await self.writer.commit({}, self.changelog, self.source, offset)

    async def commit(self) -> None:
        """Have written what was done, then keep it in the store."""
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
        self._checkpoint_if_far()

    # --- the store on disk ----------------------------------------------------------------------

    def close(self) -> None:
        """Have everything on disk, with its checkpoint. It blocks for as long as that takes."""
        try:
            self._wait_for_checkpoint()
            self._write_checkpoint(self.position, self._current_at)
        finally:
            self._rocks.close()

    def refresh_checkpoint(self) -> None:
        """To be called from time to time: a checkpoint must not become too old to be trusted only
        because there are few changes. Raises what the checkpoint before has met."""
        if self.state is TaskState.RUNNING:
            self._current_at = self._options.wall()
        self._checkpoint_if_far()

    def _checkpoint_if_far(self) -> None:
        """Raises what the checkpoint before has met."""
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
        if self.position - self._checkpoint >= every or is_old:
            self._checkpoint, self._checkpoint_current_at = self.position, self._current_at
            self._checkpoint_write = self._disk.submit(
                self._write_checkpoint, self.position, self._current_at
            )

    def _wait_for_checkpoint(self) -> None:
        checkpoint_write, self._checkpoint_write = self._checkpoint_write, None
        if checkpoint_write is not None:
            checkpoint_write.result()

    def _write_checkpoint(self, position: int, current_at: float) -> None:
        """What is written to the store meanwhile is flushed or not: both fit."""
        self._rocks.flush()
        self._directory.write_checkpoint(
            Checkpoint(self._processor.store, position, self._changelog_topic.topic_id, current_at)
        )
