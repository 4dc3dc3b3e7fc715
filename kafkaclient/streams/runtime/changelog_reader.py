"""Reads changelogs: restores active tasks, and keeps standbys up to date."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from aiokafka import TopicPartition as ConsumerPartition
from aiokafka.errors import OffsetOutOfRangeError

from kafkaclient.streams.runtime.task_states import TaskState
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiokafka import AIOKafkaConsumer

    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.runtime.task_store import TaskStore
    from kafkaclient.streams.tasks import TaskId

_POLL_MS = 100
_MAX_RECORDS = 1_000  # per poll: about 10 ms of event loop time, in which running tasks wait


class ChangelogBytes(NamedTuple):
    """Bytes of keys and values that an instance has read from changelogs since it started."""

    restored: int
    """Read to restore active tasks, which could not process records meanwhile."""
    followed: int
    """Read for standbys and warm-ups."""


class ChangelogReader:
    """Reads with its own consumer, without group, with ``read_committed``. Standbys pause while a
    task is restoring.

    The consumer's position in a changelog equals the position of its task: each fetched record is
    the next change that the task needs.
    """

    def __init__(self, consumer: AIOKafkaConsumer, on_lag: Callable[[TaskId, int], None]) -> None:
        self._consumer = consumer
        self._on_lag = on_lag
        """Called with the lag of each standby, in records."""
        self._stores: dict[TopicPartition, tuple[Task, TaskStore]] = {}
        self._assigned: frozenset[TopicPartition] = frozenset()
        """The consumer's partitions, including those no longer followed."""
        self._positions: dict[TopicPartition, int] = {}
        """The consumer's positions. They differ from a task's position when it has started over."""
        self._has_tasks = asyncio.Event()
        self.bytes_read = ChangelogBytes(0, 0)

    def follow(self, tasks: Iterable[Task]) -> None:
        """Read the changelogs of exactly these tasks, each from the task's position."""
        before, self._stores = (
            self._stores,
            {store.changelog: (task, store) for task in tasks for store in task.task_stores},
        )
        if not self._stores:
            self._has_tasks.clear()
            return
        if any(before.get(partition) != entry for partition, entry in self._stores.items()):
            # Assigning partitions also forgets their end offsets.
            self._assigned = frozenset(self._stores)
            self._consumer.assign([ConsumerPartition(*partition) for partition in self._stores])
            self._positions = {}
            self._seek()
        # If tasks were only removed, fetches in progress stay valid for the others.
        urgent = any(task.state is TaskState.RESTORING for task, _ in self._stores.values())
        for partition in self._assigned:
            entry = self._stores.get(partition)
            waits = entry is None or (urgent and entry[0].state is TaskState.STANDBY)
            change = self._consumer.pause if waits else self._consumer.resume
            change(ConsumerPartition(*partition))
        self._has_tasks.set()

    def _seek(self) -> None:
        """Seek the consumer to the tasks' positions."""
        for partition, (_, store) in self._stores.items():
            if self._positions.get(partition) != store.position:
                self._consumer.seek(ConsumerPartition(*partition), store.position)
                self._positions[partition] = store.position

    async def run(self) -> None:
        """Poll in a loop; never returns."""
        while True:
            await self._has_tasks.wait()
            await self._poll()
            # getmany() does not wait while records are buffered.
            await asyncio.sleep(0)

    async def _poll(self) -> None:
        self._seek()
        try:
            found = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=_MAX_RECORDS)
        except OffsetOutOfRangeError as error:
            await self._start_over(error.args[0])
            return
        for partition, records in found.items():
            task, store = self._stores.get(TopicPartition(*partition), (None, None))
            if task is None or store is None or store.position != self._positions[store.changelog]:
                continue  # while getmany() waited, the task was removed or started over
            store.restore(records)
            size = sum(len(record.key) + len(record.value or b"") for record in records)
            restored, followed = self.bytes_read
            if task.state is TaskState.RESTORING:
                restored += size
            else:
                followed += size
            self.bytes_read = ChangelogBytes(restored, followed)
        await self._update_tasks()

    async def _update_tasks(self) -> None:
        for partition, (task, store) in list(self._stores.items()):
            known = ConsumerPartition(*partition)
            position = await self._consumer.position(known)
            if self._stores.get(partition) != (task, store):
                return
            if store.position != self._positions[partition]:
                continue
            self._positions[partition] = position
            stable = self._consumer.last_stable_offset(known)
            end = stable if stable is not None and stable >= 0 else self._consumer.highwater(known)
            store.reached(position, end)
            if task.state is TaskState.STANDBY and task.lag is not None:
                self._on_lag(task.id, task.lag)

    async def _start_over(self, offsets: Mapping[ConsumerPartition, int]) -> None:
        """Restart the tasks whose offset is out of range. The consumer may also report partitions
        of its previous assignment."""
        beginnings = await self._consumer.beginning_offsets(list(offsets))
        for partition, offset in beginnings.items():
            _, store = self._stores.get(TopicPartition(*partition), (None, None))
            if store is not None and store.position == offsets[partition]:
                store.start_over(offset)
        self._seek()
