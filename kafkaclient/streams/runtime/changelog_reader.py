"""Reads changelogs: restores active tasks, and keeps standbys up to date."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.streams.runtime.inputs import restart_offset
from kafkaclient.streams.tasks import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from kafkaclient.reader.batch import FetchedBatch
    from kafkaclient.reader.reader import Reader
    from kafkaclient.streams.runtime.observer import Observer
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.runtime.task_store import TaskStore
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.types import TopicPartition


# --- Ends what must not stay half ended -----------------------------------------------------------


async def to_the_end(work: Coroutine[object, object, None], on_cancel: Callable[[], None]) -> None:
    """Await ``work`` to its end, however often the caller is cancelled. ``on_cancel`` is called for
    each time, and CancelledError raised afterwards. ``work`` needs its own time limits."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    task.result()
    if cancelled is not None:
        raise cancelled


# --- Reads changelogs: restores active tasks, and keeps standbys up to date -----------------------

_WAIT_S = 0.1
_MAX_CHANGES = 1_000  # applied at a time: a few ms of event loop time, in which tasks wait


class ChangelogBytes(NamedTuple):
    """Bytes of keys and values that an instance has read from changelogs since it started."""

    restored: int
    """Read to restore active tasks, which could not process records meanwhile."""
    followed: int
    """Read for standbys and warm-ups."""


class ChangelogReader:
    """Reads all changelogs in one read, with ``read_committed``. Standbys pause while a task is
    restoring."""

    def __init__(
        self, reader: Reader, on_lag: Callable[[TaskId, int], None], observer: Observer
    ) -> None:
        self._reading = reader.read({})
        self._on_lag = on_lag
        """Called with the lag of each standby, in records."""
        self._observer = observer
        self._stores: dict[TopicPartition, tuple[Task, TaskStore]] = {}
        self._positions: dict[TopicPartition, int] = {}
        """Where this reader last left each store. The store's own position differs after
        :meth:`.TaskStore.start_over`."""
        self._has_tasks = asyncio.Event()
        self.bytes_read = ChangelogBytes(0, 0)

    def follow(self, tasks: Iterable[Task]) -> None:
        """Read the changelogs of exactly these tasks, each from the task's position."""
        before = self._stores
        self._stores = {
            store.changelog: (task, store) for task in tasks for store in task.task_stores
        }
        for partition in before.keys() - self._stores.keys():
            self._reading.remove(partition)
            del self._positions[partition]
        urgent = any(task.state is TaskState.RESTORING for task, _ in self._stores.values())
        for partition, (task, store) in self._stores.items():
            if partition not in before:
                self._reading.add(partition, store.position)
                self._positions[partition] = store.position
            elif before[partition][1] is not store:
                self._seek(store)
            waits = urgent and task.state is TaskState.STANDBY
            (self._reading.pause if waits else self._reading.resume)(partition)
        if self._stores:
            self._has_tasks.set()
        else:
            self._has_tasks.clear()

    async def run(self) -> None:
        """Read in a loop; never returns. Raises KafkaError if a changelog must not or cannot be
        read."""
        while True:
            await self._has_tasks.wait()
            await self._reading.wait(_WAIT_S)
            self._seek_moved()
            batch = self._reading.take()
            if batch is not None:
                await self._apply(batch)
            self._update_tasks()
            self._restart_failed()

    async def _apply(self, batch: FetchedBatch) -> None:
        """Apply the changes, unless the task leaves or the store starts over meanwhile. A task that
        leaves in the middle of a batch may have changes behind its position, which it then applies
        again."""
        partition = batch.topic_partition
        task, store = entry = self._stores[partition]
        await store.until_emptied()
        if self._stores.get(partition) != entry or self._has_moved(store):
            return
        changes, records = batch.pairs(), 0
        while part := list(islice(changes, _MAX_CHANGES)):
            store.restore(part)
            records += len(part)
            await asyncio.sleep(0)
            if self._stores.get(partition) != entry or self._has_moved(store):
                return
        restored, followed = self.bytes_read
        if task.state is TaskState.RESTORING:
            restored += batch.content_bytes
        else:
            followed += batch.content_bytes
        self.bytes_read = ChangelogBytes(restored, followed)
        offset = self._reading.positions[partition]
        self._observer.changelog_read(task.id, partition, offset, records, batch.content_bytes)

    def _update_tasks(self) -> None:
        positions, ends = self._reading.positions, self._reading.ends
        for partition, entry in list(self._stores.items()):
            task, store = entry
            if self._stores.get(partition) != entry or self._has_moved(store):
                continue
            self._positions[partition] = positions[partition]
            store.reached(positions[partition], ends[partition])
            if task.state is TaskState.STANDBY and task.lag is not None:
                self._on_lag(task.id, task.lag)

    def _has_moved(self, store: TaskStore) -> bool:
        return store.position != self._positions[store.changelog]

    def _seek_moved(self) -> None:
        """Follow stores that have started over."""
        for _, store in self._stores.values():
            if self._has_moved(store):
                self._seek(store)

    def _seek(self, store: TaskStore) -> None:
        self._reading.seek(store.changelog, store.position)
        self._positions[store.changelog] = store.position

    def _restart_failed(self) -> None:
        """Restart the stores whose offset is out of range."""
        for partition, error in self._reading.errors.items():
            _, store = self._stores[partition]
            offset = restart_offset(error, at_end=False)
            if offset is not None and not self._has_moved(store):
                store.start_over(offset, f"has no offset {store.position}")
            self._seek(store)
