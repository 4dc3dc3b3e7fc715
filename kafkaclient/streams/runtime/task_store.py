"""One store of a task: its RocksDB, its position in the changelog and its checkpoint.

The only module that uses RocksDB's binding.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from kafkaclient.errors import ConfigError, StateStoreError
from kafkaclient.streams.key_value_store import KeyValueStore
from kafkaclient.streams.state_directory import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor, Future

    from kafkaclient.streams.declarations import Store
    from kafkaclient.streams.state_directory import ChangelogTopic, StoreDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.types import TopicPartition


try:
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions
except ImportError as error:
    raise ConfigError(
        "a streams application needs rocksdict for its state: pip install 'kafkaclient[streams]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path


_POSITION = "position"  # a column family of its own: keys of stores are any bytes


class RocksStore:
    """A map from bytes to bytes, ordered by key.

    There is no write-ahead log: after a crash, writes that were not flushed are restored from the
    changelog. The files always contain all writes up to some point in time. Calls block: usually
    for microseconds, :meth:`flush` for as long as the disk takes.

    The position in the changelog is in the RocksDB, too, written after the changes before it. So
    files that lack changes, because some were removed or damaged, lack the position as well.

    Every method raises :class:`~kafkaclient.errors.StateStoreError` on a disk error.
    """

    failure: StateStoreError | None = None
    """The last error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_keep_log_file_num(2)
        self._write_options = WriteOptions()
        # The binding's stub declares this property as a method.
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]
        self._reads: WeakSet[Generator[tuple[bytes, bytes], None, None]] = WeakSet()
        with self._store_errors("opened"):
            families = {_POSITION: Options(raw_mode=True)}
            self._db = Rdict(str(path), options, column_families=families)
            self._positions = self._db.get_column_family(_POSITION)
            self.position = int(self._positions.get(b"") or 0)
            """The files have all changes before this offset of the changelog."""

    def get(self, key: bytes) -> bytes | None:
        try:  # called for each record: a context manager takes longer than the read
            value: bytes | None = self._db.get(key)
        except Exception as error:  # the binding has no narrower type
            raise self._error("read", error) from error
        return value

    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All pairs from ``start`` on. The iteration shows the store as of the call. :meth:`close`
        ends it."""
        with self._store_errors("read"):
            pairs = _each(cast("Iterator[tuple[bytes, bytes]]", self._db.items(from_key=start)))
        self._reads.add(pairs)
        return pairs

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write all changes atomically. None deletes a key."""
        batch = WriteBatch(raw_mode=True)
        for key, value in changes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        with self._store_errors("written"):
            self._db.write(batch, write_opt=self._write_options)

    def flush(self, position: int | None = None) -> None:
        """Write everything to disk: all changes before ``position``, and perhaps later ones."""
        with self._store_errors("flushed"):
            self._db.flush()
            if position is not None:
                self._positions.put(b"", b"%d" % position, write_opt=self._write_options)
                self._positions.flush()

    def close(self) -> None:
        """Close the files, and end the iterations, which would keep the files locked."""
        for pairs in list(self._reads):
            with suppress(ValueError):  # another thread is taking its next pair
                pairs.close()
        with self._store_errors("closed"):
            self._positions.close()
            self._db.close()

    @contextmanager
    def _store_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._error(what, error) from error

    def _error(self, what: str, error: Exception) -> StateStoreError:
        self.failure = StateStoreError(
            f"the store {self._path} cannot be {what}: {error}. No data is lost: the changelog has "
            "all of it. Free disk space or repair the disk, and restart. A deleted directory is "
            "restored from the changelog"
        )
        return self.failure


def _each(
    pairs: Iterable[tuple[bytes, bytes]],
) -> Generator[tuple[bytes, bytes], None, None]:
    """A generator can be closed, and holds the RocksDB's iterator until then."""
    yield from pairs


_log = logging.getLogger(__name__)

_CHECKPOINT_INTERVAL = 10_000  # changes; Java: OFFSET_DELTA_THRESHOLD_FOR_CHECKPOINT
_CHECKPOINT_INTERVAL_FAR_BEHIND = 200_000  # changes; larger, because each checkpoint is a flush
_CHECKPOINT_AGE = 0.25  # fraction of delete.retention.ms after which a checkpoint is renewed
_MIN_CHECKPOINT_AGE_S = 60.0  # a checkpoint is not renewed earlier, unless there are changes


class TaskStore:
    """Methods that use the RocksDB raise :class:`~kafkaclient.errors.StateStoreError` on a disk
    error, and so does the constructor.

    Checkpoints are written in ``disk``'s threads, and the store is emptied there, because that
    takes as long as the disk does and other tasks must not wait for it. The constructor and
    :meth:`close` may run there, too.
    """

    def __init__(
        self,
        task: TaskId,
        declared: Store[Any, Any],
        changelog: TopicPartition,
        topic: ChangelogTopic,
        directory: StoreDirectory,
        disk: Executor,
        wall: Callable[[], float],
        max_change_bytes: int,
    ) -> None:
        self.task = task
        self.declared = declared
        self.changelog = changelog
        self.lag: int | None = None
        """While following the changelog: records behind its end. None: not known yet."""
        self._topic = topic
        self._directory = directory
        self._disk = disk
        self._wall = wall
        self._max_change_bytes = max_change_bytes
        self._disk_work: Future[None] | None = None
        """The last checkpoint, or emptying of the store: done or in progress."""
        self._emptying: Future[None] | None = None
        """Until somebody has waited for it."""
        now = wall()
        checkpoint = directory.load_or_wipe(topic, now)
        self._open()
        if checkpoint is not None and self._rocks.position < checkpoint.offset:
            _log.warning(
                "task %s: the files of store %s are damaged or were removed: its checkpoint is at "
                "offset %d of its changelog, and the files at %d. The store is restored from the "
                "beginning of the changelog",
                *(task, declared.name, checkpoint.offset, self._rocks.position),
            )
            checkpoint = None
            self._empty(None, now)
        self.position = 0 if checkpoint is None else checkpoint.offset
        """Offset of the next change of the changelog. The store contains all earlier changes."""
        self._current_at = now if checkpoint is None else checkpoint.current_at
        """When the store last had its whole changelog, in seconds since 1970. A new, empty store
        lacks no deletion, so it counts as current."""
        self._checkpoint_position, self._checkpoint_current_at = self.position, self._current_at
        self._restored_at: int | None = None
        self._restored = asyncio.Event()
        self._was_complete = checkpoint is not None
        """Whether the store has had its whole changelog since it was empty."""

    def _open(self) -> None:
        self._rocks = RocksStore(self._directory.rocksdb)
        self.view: KeyValueStore[Any, Any] = self._new_view()
        """What the task's processors use."""

    def _new_view(self) -> KeyValueStore[Any, Any]:
        return KeyValueStore(self.declared, self._rocks, self._max_change_bytes)

    def __repr__(self) -> str:
        return f"<store of task {self.task} at {self.position} of {self.changelog}>"

    @property
    def stored(self) -> RocksStore:
        """The committed pairs, for reading."""
        return self._rocks

    # --- following the changelog ----------------------------------------------------------------

    def restore(self, changes: Iterable[tuple[Any, bytes | None]]) -> None:
        """Apply changes read from the changelog: keys with their values, None if deleted."""
        self._rocks.apply(changes)

    def reached(self, position: int, end: int | None) -> None:
        """All changes before ``position`` are applied. ``end``: the changelog's, None if
        unknown. A store that has followed for too long without reaching the end starts over: it may
        lack deletions. An empty one does not, so that it is restored some time."""
        age_s = self._wall() - self._current_at
        if self._was_complete and age_s > self._topic.delete_retention_s:
            self.start_over(
                0,
                f"is {age_s:.0f} s behind, and keeps deletions for "
                f"{self._topic.delete_retention_s:.0f} s (delete.retention.ms)",
            )
            return
        self.position = position
        if end is not None:
            self.lag = max(0, end - position)
            if self.lag == 0:
                self._current_at, self._was_complete = self._wall(), True
        if self._restored_at is not None and position >= self._restored_at:
            self._restored.set()
        self.checkpoint_if_due()

    async def wait_until_restored(self, end: int) -> None:
        """Wait until all changes before ``end`` are applied. ``end`` is the changelog's end offset,
        as of :func:`.ends_from`: a store with a later position belongs to another changelog, and
        starts over."""
        if self.position > end:
            self.start_over(0, f"has no offset {self.position}")
        await self.until_emptied()
        self._restored_at = end
        self._restored.clear()
        self.reached(self.position, end)
        await self._restored.wait()
        await self.until_emptied()  # it may have started over at the end

    def stop_waiting(self) -> None:
        """The task is not restored any more."""
        self._restored_at = None

    def start_over(self, position: int, why: str) -> None:
        """Replace the store by an empty one. ``why``: what is wrong with it or its changelog.
        Nothing may be restored, read or written before :meth:`until_emptied` returns."""
        _log.warning(
            "task %s: store %s with its changelog %s %s; it is restored from offset %d",
            *(self.task, self.declared.name, self.changelog, why, position),
        )
        self.position = self._checkpoint_position = position
        self._current_at, self._was_complete = self._wall(), False
        self._emptying = self._disk.submit(self._empty, self._disk_work, self._current_at)
        self._disk_work = self._emptying

    def _empty(self, earlier: Future[None] | None, now: float) -> None:
        """Runs in a thread of ``disk``, which has begun the ``earlier`` work before."""
        if earlier is not None:
            earlier.result()
        self._rocks.close()
        self._directory.wipe()
        self._directory.load_or_wipe(self._topic, now)
        self._open()

    async def until_emptied(self) -> None:
        """Wait until the store is open again after :meth:`start_over`."""
        while (emptying := self._emptying) is not None:
            # Not cancelled with its waiter: the position is the empty store's already.
            await asyncio.shield(asyncio.wrap_future(emptying))
            if self._emptying is emptying:
                self._emptying = None

    # --- written by the task itself -------------------------------------------------------------

    def drop_changes(self) -> None:
        """Drop the uncommitted changes. A processor that still runs cannot use the store."""
        self.view.close()
        self.view = self._new_view()

    def on_committed(self, position: int | None) -> None:
        """The store's changes are in the changelog, up to ``position``. None: it is not known, or
        there were no changes."""
        self.view.commit()
        if position is not None:
            self.position = position
        self.checkpoint_if_due()

    def mark_current(self) -> None:
        """The store has its whole changelog now, because its task runs here: unless the process was
        stopped for so long that the task may run elsewhere."""
        if (now := self._wall()) - self._current_at <= self._topic.delete_retention_s:
            self._current_at = now

    # --- checkpoints ----------------------------------------------------------------------------

    def checkpoint_if_due(self) -> None:
        """Start a checkpoint if it is due. Raises the error of the previous one."""
        if self._disk_work is not None:
            if not self._disk_work.done():
                return
            self._wait_for_disk()
        far_behind = self.lag is not None and self.lag > _CHECKPOINT_INTERVAL
        every = _CHECKPOINT_INTERVAL_FAR_BEHIND if far_behind else _CHECKPOINT_INTERVAL
        aged_s = self._current_at - self._checkpoint_current_at
        is_old = aged_s > max(
            _MIN_CHECKPOINT_AGE_S, self._topic.delete_retention_s * _CHECKPOINT_AGE
        )
        if self.position - self._checkpoint_position >= every or is_old:
            self._checkpoint_position, self._checkpoint_current_at = self.position, self._current_at
            self._disk_work = self._disk.submit(
                self._write_checkpoint, self.position, self._current_at
            )

    def close(self) -> None:
        """Write everything to disk, with a checkpoint. Blocks for as long as the disk takes."""
        try:
            self._wait_for_disk()
            self._write_checkpoint(self.position, self._current_at)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the RocksDB without a checkpoint."""
        self._rocks.close()

    def _wait_for_disk(self) -> None:
        work, self._disk_work = self._disk_work, None
        if work is not None:
            work.result()

    def _write_checkpoint(self, position: int, current_at: float) -> None:
        """Flush, and write the checkpoint. Later changes may be flushed, too: that is correct."""
        self._rocks.flush(position)
        self._directory.write_checkpoint(Checkpoint(position, self._topic.topic_id, current_at))
