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
        self._tasks: dict[TopicPartition, Task] = {}
        self._assigned: frozenset[TopicPartition] = frozenset()
        """The consumer's partitions, including those no longer followed."""
        self._positions: dict[TopicPartition, int] = {}
        """The consumer's positions. They differ from a task's position when it has started over."""
        self._has_tasks = asyncio.Event()
        self.bytes_read = ChangelogBytes(0, 0)

    def follow(self, tasks: Iterable[Task]) -> None:
        """Read the changelogs of exactly these tasks, each from the task's position."""
        before, self._tasks = self._tasks, {task.changelog: task for task in tasks}
        if not self._tasks:
            self._has_tasks.clear()
            return
        if any(task is not before.get(partition) for partition, task in self._tasks.items()):
            # Assigning partitions also forgets their end offsets.
            self._assigned = frozenset(self._tasks)
            self._consumer.assign([ConsumerPartition(*partition) for partition in self._tasks])
            self._positions = {}
            self._seek()
        # If tasks were only removed, fetches in progress stay valid for the others.
        urgent = any(task.state is TaskState.RESTORING for task in self._tasks.values())
        for partition in self._assigned:
            task = self._tasks.get(partition)
            waits = task is None or (urgent and task.state is TaskState.STANDBY)
            change = self._consumer.pause if waits else self._consumer.resume
            change(ConsumerPartition(*partition))
        self._has_tasks.set()

    def _seek(self) -> None:
        """Seek the consumer to the tasks' positions."""
        for partition, task in self._tasks.items():
            if self._positions.get(partition) != task.position:
                self._consumer.seek(ConsumerPartition(*partition), task.position)
                self._positions[partition] = task.position

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
            task = self._tasks.get(TopicPartition(*partition))
            if task is None or task.position != self._positions[task.changelog]:
                continue  # while getmany() waited, the task was removed or started over
            task.restore(records)
            size = sum(len(record.key) + len(record.value or b"") for record in records)
            restored, followed = self.bytes_read
            if task.state is TaskState.RESTORING:
                restored += size
            else:
                followed += size
            self.bytes_read = ChangelogBytes(restored, followed)
        await self._update_tasks()

    async def _update_tasks(self) -> None:
        for partition, task in list(self._tasks.items()):
            known = ConsumerPartition(*partition)
            position = await self._consumer.position(known)
            if self._tasks.get(partition) is not task:
                return
            if task.position != self._positions[partition]:
                continue
            self._positions[partition] = position
            stable = self._consumer.last_stable_offset(known)
            end = stable if stable is not None and stable >= 0 else self._consumer.highwater(known)
            task.reached(position, end)
            if task.state is TaskState.STANDBY and task.lag is not None:
                self._on_lag(task.id, task.lag)

    async def _start_over(self, offsets: Mapping[ConsumerPartition, int]) -> None:
        """Restart the tasks whose offset is out of range. The consumer may also report partitions
        of its previous assignment."""
        beginnings = await self._consumer.beginning_offsets(list(offsets))
        for partition, offset in beginnings.items():
            task = self._tasks.get(TopicPartition(*partition))
            if task is not None and task.position == offsets[partition]:
                task.start_over(offset)
        self._seek()
