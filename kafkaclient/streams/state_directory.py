"""The state directory of an instance: its lock, its process id, and a directory per task and store.

::

    {state.dir}/{application.id}/.lock
                                 process-id
                                 0_1/counts/checkpoint
                                            rocksdb/

A checkpoint is a small file with the changelog position of a store, replaced atomically. It is like
Kafka Streams' ``OffsetCheckpoint``, plus a checksum: with too high a position the store would
silently lack changes."""

from __future__ import annotations

import logging
import os
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from crc32c import crc32c
from filelock import FileLock, Timeout

from kafkaclient.errors import StateStoreError
from kafkaclient.streams.tasks import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path


_log = logging.getLogger(__name__)

_FORMAT = re.compile(
    r"3\n(?P<offset>\d{1,19}) (?P<topic>-|[0-9a-f-]{36}) (?P<current_ms>\d{1,15})\n"
)
_CHECKSUM = "crc32c "
_CHECKPOINT = "checkpoint"


class ChangelogTopic(NamedTuple):
    """Properties of a changelog topic that decide whether a checkpoint is still valid."""

    topic_id: UUID | None
    """None: unknown, for example before Kafka 2.8."""
    delete_retention_s: float
    """``delete.retention.ms``: brokers drop tombstones after it, and readers miss the deletion."""


UNKNOWN_CHANGELOG = ChangelogTopic(None, 86_400.0)


class Checkpoint(NamedTuple):
    """The store contains all changes before ``offset`` of its changelog."""

    offset: int
    topic_id: UUID | None = None
    """Topic id of the changelog. None: unknown."""
    current_at: float = 0.0
    """When the store last had its whole changelog, in seconds since 1970."""

    def problem(self, changelog: ChangelogTopic, now: float) -> str | None:
        """Why the store must not be used any more. None: the store is valid."""
        if None not in (self.topic_id, changelog.topic_id) and self.topic_id != changelog.topic_id:
            return "its changelog was deleted and created again"
        age_s = now - self.current_at
        if age_s > changelog.delete_retention_s:
            return (
                f"its checkpoint is {age_s:.0f} s old, and its changelog keeps deletions for "
                f"{changelog.delete_retention_s:.0f} s (delete.retention.ms)"
            )
        return None


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file atomically. Call it after the store is flushed to disk.

    Raises :class:`~kafkaclient.errors.StateStoreError` if it cannot be written. The old file then
    remains.
    """
    topic = checkpoint.topic_id or "-"
    current_ms = int(checkpoint.current_at * 1000)
    text = f"3\n{checkpoint.offset} {topic} {current_ms}\n"
    text += f"{_CHECKSUM}{crc32c(text.encode()):08x}\n"
    new = path.with_suffix(".new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise StateStoreError(
            f"the checkpoint {path} cannot be written: {error}. The previous checkpoint remains: "
            "free disk space or correct the permissions, and restart"
        ) from error


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint. None if the file does not exist. Raises
    :class:`~kafkaclient.errors.StateStoreError` if the file is unreadable or damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateStoreError(f"the checkpoint {path} cannot be read: {error}") from error
    content, separator, checksum = data.rpartition(_CHECKSUM.encode())
    match = _FORMAT.fullmatch(content.decode("utf-8", "replace"))
    if not separator or match is None or checksum != b"%08x\n" % crc32c(content):
        raise StateStoreError(
            f"the checkpoint {path} is damaged: its {len(data)} bytes do not match their checksum"
        )
    topic_id = None if match["topic"] == "-" else UUID(match["topic"])
    return Checkpoint(int(match["offset"]), topic_id, int(match["current_ms"]) / 1000)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class TaskDirectory:
    """The directories of one task's stores."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def store(self, name: str) -> StoreDirectory:
        return StoreDirectory(self.path / name)

    def prepare(self, stores: Collection[str]) -> None:
        """Check the directory before its stores are opened. Raises
        :class:`~kafkaclient.errors.StateStoreError` if it has another store."""
        for name in self._stores():
            if name not in stores:
                raise StateStoreError(
                    f"{self.path} has the store {name!r}, which task {self.path.name} of this "
                    f"application does not know: its stores are {', '.join(stores) or 'none'}. "
                    "Give the changed application another application.id, or delete the directory "
                    "to restore the stores"
                )

    def position(self) -> int | None:
        """Sum of the stores' changelog positions. None: there is no valid checkpoint."""
        found = [self.store(name).checkpoint() for name in self._stores()]
        offsets = [checkpoint.offset for checkpoint in found if checkpoint is not None]
        return sum(offsets) if offsets else None

    def wipe(self) -> None:
        """Remove the directory, checkpoints first: without its checkpoint, a store is invalid."""
        for name in self._stores():
            self.store(name).wipe()
        _remove(self.path)

    def _stores(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return sorted(path.name for path in self.path.iterdir() if path.is_dir())


class StoreDirectory:
    """The files of one store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checkpoint = path / _CHECKPOINT

    @property
    def rocksdb(self) -> Path:
        return self.path / "rocksdb"

    def checkpoint(self) -> Checkpoint | None:
        """The store's checkpoint. None if it is missing or damaged."""
        try:
            return read_checkpoint(self._checkpoint)
        except StateStoreError as error:
            _log.warning("%s; the store is restored from the beginning of its changelog", error)
            return None

    def load_or_wipe(self, changelog: ChangelogTopic, now: float) -> Checkpoint | None:
        """Prepare the directory for opening the store, and return its checkpoint.

        If there is no valid checkpoint, the directory's content is removed: it may lack changes,
        and deletions among them may be gone from the changelog. A checkpoint is invalid if it
        belongs to another changelog topic or is too old. ``now`` is in seconds since 1970.
        """
        checkpoint = self.checkpoint()
        if checkpoint is None:
            self.wipe()
        elif problem := checkpoint.problem(changelog, now):
            _log.warning(
                "store %s of task %s cannot be used: %s. The store is restored from the beginning "
                "of its changelog",
                self.path.name,
                self.path.parent.name,
                problem,
            )
            self.wipe()
            checkpoint = None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateStoreError(f"directory {self.path} cannot be created: {error}") from error
        return checkpoint

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        write_checkpoint(self._checkpoint, checkpoint)

    def wipe(self) -> None:
        """Remove the directory, checkpoint first: without checkpoint, the rest is invalid."""
        _remove(self.path, self._checkpoint)


class StateDirectory:
    """The locked state directory of this process. Raises
    :class:`~kafkaclient.errors.StateStoreError` if another process has locked it, or if it cannot
    be used.

    Tasks reported to the leader are not cleaned up before the next assignment: the leader may
    assign them here because of their state (KIP-441).
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.path = path
        self._clock = clock
        self._reported: frozenset[TaskId] = frozenset()
        self._unused_since: dict[TaskId, float] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = _acquire_lock(path / ".lock")
        except OSError as error:
            raise StateStoreError(f"the state directory {path} cannot be used: {error}") from error
        try:
            self.process_id = _read_or_create_process_id(path / "process-id")
        except StateStoreError:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def task(self, task: TaskId) -> TaskDirectory:
        return TaskDirectory(self.path / str(task))

    def report(self) -> dict[TaskId, int]:
        """Position of each task on disk with a checkpoint: the sum over its stores. The tasks are
        kept until :meth:`release`."""
        positions = {task: self.task(task).position() for task in self._tasks()}
        found = {task: position for task, position in positions.items() if position is not None}
        self._reported = frozenset(found)
        return found

    def release(self) -> None:
        """The assignment has arrived: reported tasks may be cleaned up again."""
        self._reported = frozenset()

    def clean(self, used: Iterable[TaskId], delay: float) -> list[TaskId]:
        """Remove and return the tasks that have been unused for ``delay`` seconds.

        Call it regularly: it knows only from its calls which tasks are in use.
        """
        now = self._clock()
        used = set(used)
        unused = [task for task in self._tasks() if task not in used]
        self._unused_since = {task: self._unused_since.get(task, now) for task in unused}
        removed = [
            task
            for task in unused
            if task not in self._reported and now - self._unused_since[task] >= delay
        ]
        for task in removed:
            self.task(task).wipe()
            _log.info("removed the state of task %s, unused for %.0f s", task, delay)
        return removed

    def _tasks(self) -> list[TaskId]:
        found = []
        for path in self.path.iterdir():
            with suppress(ValueError):  # another file of the directory
                found.append(TaskId.parse(path.name))
        return sorted(found)


def _remove(path: Path, *first: Path) -> None:
    """Remove a directory, beginning with the files ``first``."""
    try:
        for each in first:
            each.unlink(missing_ok=True)
        if path.exists():
            shutil.rmtree(path)
    except OSError as error:
        raise StateStoreError(f"directory {path} cannot be removed: {error}") from error


def remove_state(path: Path) -> bool:
    """Remove an application's state directory, with the state of all tasks. Returns whether it
    existed. Raises :class:`~kafkaclient.errors.StateStoreError` if a process uses it, or if it
    cannot be removed."""
    if not path.exists():
        return False
    try:
        lock = _acquire_lock(path / ".lock")
        try:
            shutil.rmtree(path)
        finally:
            lock.release()
    except OSError as error:
        raise StateStoreError(f"the state directory {path} cannot be removed: {error}") from error
    return True


def _acquire_lock(path: Path) -> FileLock:
    lock = FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        owner = path.read_text("utf-8").strip()
        raise StateStoreError(
            f"the state directory {path.parent} is in use by process {owner or 'unknown'}; give "
            "each instance a state.dir of its own"
        ) from error
    path.write_text(f"{os.getpid()}\n", "utf-8")
    return lock


def _read_or_create_process_id(path: Path) -> UUID:
    """The id of this instance. It is stored, so that a restarted instance gets the same tasks."""
    try:
        # A disk that was full leaves an empty file.
        if path.exists() and (written := path.read_text("utf-8").strip()):
            return UUID(written)
        name = uuid4()
        path.write_text(f"{name}\n", "utf-8")
    except (OSError, ValueError) as error:
        raise StateStoreError(
            f"the instance id in {path} cannot be used: {error}. Delete the file to get a new id"
        ) from error
    return name
