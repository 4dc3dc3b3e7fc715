"""One task's copy on this instance: its store, how far that is, and the work on it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kafkaclient.streams.runtime.task_states import TRANSITIONS, TaskEvent, TaskState
from kafkaclient.streams.state.key_value_store import KeyValueStore
from kafkaclient.streams.state.rocks import RocksStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Executor, Future

    from kafkaclient.streams.runtime.writers import Writer
    from kafkaclient.streams.state.directory import TaskDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import HeadersLike

__all__ = ["Task"]

_log = logging.getLogger(__name__)

_CHECKPOINT_EVERY = 10_000
"""Changes: what has to be read again at most when the process is killed (Java:
``OFFSET_DELTA_THRESHOLD_FOR_CHECKPOINT``)."""
_CHECKPOINT_FAR_BEHIND = 200_000
"""The same while it has further to go: every checkpoint is a flush."""


class Task:
    """Created open. Raises :class:`~kafkaclient.errors.StateStoreError` when the store cannot be
    used; every method that touches it does.

    Checkpoints are written by ``disk``'s threads: the store is flushed for as long as the disk
    takes, and the other tasks do not wait for it. So may :meth:`close` be, and creating it.
    """

    def __init__(
        self, task: TaskId, topology: Topology, directory: TaskDirectory, disk: Executor
    ) -> None:
        self.id = task
        self.source = topology.source(task)
        self.changelog = topology.changelog(task)
        self.state = TaskState.CREATED
        self.source_offset = 0
        """While RUNNING: the next record to process."""
        self.lag: int | None = None
        """While it follows its changelog: records behind; None: not known yet."""
        self.writer: Writer | None = None
        self.is_dirty = False
        """Whether something was processed that is not committed."""
        self._processor = topology.processor(task)
        self._directory = directory
        self._disk = disk
        self._writing: Future[None] | None = None
        """The checkpoint that is being written, or was written last."""
        checkpoint = directory.prepare(self._processor.store)
        self.position = checkpoint or 0
        """The next change of the changelog to apply; those before are in the store."""
        self._checkpoint = self.position
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
    def follows_changelog(self) -> bool:
        return self.state in (TaskState.RESTORING, TaskState.STANDBY)

    def advance(self, event: TaskEvent) -> None:
        """Raises KeyError for what cannot happen in this state."""
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if before is not self.state:
            _log.info("task %s: %s, %s from now on", self.id, event.value, self.state.value)
        if before is TaskState.RUNNING and self.state is not TaskState.RUNNING:
            self.store.drop()
            self.is_dirty = False
            self.lag = None
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
        if self._restored_at is not None and position >= self._restored_at:
            self._restored.set()
        self._checkpoint_if_far()

    async def restored(self, end: int) -> None:
        """Wait until all changes before ``end`` are applied."""
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
        self._directory.prepare(self._processor.store)
        self._open()
        self.position = self._checkpoint = position

    # --- processing -----------------------------------------------------------------------------

    async def process(self, records: Iterable[Any], keep_going: Callable[[], bool]) -> None:
        """Process records in order, until told to stop; those before :attr:`source_offset` were
        processed already. Raises whatever the processor raises: what was done since the last commit
        has to be dropped then."""
        assert self.writer is not None
        for record in records:
            if not keep_going():
                return
            if record.offset < self.source_offset:
                continue
            if not self.is_dirty:
                await self.writer.begin()
                self.is_dirty = True
            await self._processor.process(record, self.store, self.emit)
            self.source_offset = record.offset + 1

    async def emit(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> None:
        """Send a record, as :meth:`kafkaclient.Producer.send` does. Exactly once, it becomes
        visible with the commit."""
        assert self.writer is not None
        await self.writer.send(topic, value, key, partition, timestamp_ms, headers)

    async def commit(self) -> None:
        """Have written what was done, then keep it in the store."""
        if not self.is_dirty:
            return
        assert self.writer is not None
        position = await self.writer.commit(
            self.store.changes, self.changelog, self.source, self.source_offset
        )
        self.store.settle()
        self.is_dirty = False
        if position is not None:
            self.position = position
        self._checkpoint_if_far()

    # --- the store on disk ----------------------------------------------------------------------

    def close(self) -> None:
        """Have everything on disk, with its checkpoint. It blocks for as long as that takes."""
        try:
            self._wait_for_checkpoint()
            self._write_checkpoint(self.position)
        finally:
            self._rocks.close()

    def _checkpoint_if_far(self) -> None:
        """Raises what the checkpoint before has met."""
        if self._writing is not None:
            if not self._writing.done():
                return
            self._wait_for_checkpoint()
        far_behind = self.lag is not None and self.lag > _CHECKPOINT_EVERY
        every = _CHECKPOINT_FAR_BEHIND if far_behind else _CHECKPOINT_EVERY
        if self.position - self._checkpoint >= every:
            self._checkpoint = self.position
            self._writing = self._disk.submit(self._write_checkpoint, self.position)

    def _wait_for_checkpoint(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write_checkpoint(self, position: int) -> None:
        """What is written to the store meanwhile is flushed or not: both fit."""
        self._rocks.flush()
        self._directory.write_checkpoint(self._processor.store, position)
