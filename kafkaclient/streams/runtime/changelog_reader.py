"""Follows the changelogs of all tasks that do not run: restores active ones, keeps up standbys."""

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

__all__ = ["ChangelogBytes", "ChangelogReader"]

_POLL_MS = 100
_MAX_RECORDS = 1_000
"""In one go: about 10 ms of the event loop's time, for which tasks that run here wait."""


class ChangelogBytes(NamedTuple):
    """Keys and values that an instance has read from changelogs since it was started."""

    restored: int
    """By active tasks, which waited for it."""
    followed: int
    """By standbys, and by copies that warmed up."""


class ChangelogReader:
    """Over a consumer of its own, without group, which reads committed records only. While a task
    is being restored, standbys wait.

    The consumer's position in a changelog that is followed is always its task's: whatever the
    consumer returns is what the task lacks next.
    """

    def __init__(self, consumer: AIOKafkaConsumer, on_lag: Callable[[Task], None]) -> None:
        self._consumer = consumer
        self._on_lag = on_lag
        """Told how far a standby is."""
        self._tasks: dict[TopicPartition, Task] = {}
        self._assigned: frozenset[TopicPartition] = frozenset()
        """What the consumer has, also that which is not followed any more."""
        self._positions: dict[TopicPartition, int] = {}
        """The consumer's positions. A task that has started over is somewhere else."""
        self._has_tasks = asyncio.Event()
        self.bytes_read = ChangelogBytes(0, 0)

    def follow(self, tasks: Iterable[Task]) -> None:
        """From now on these, from their positions on."""
        before, self._tasks = self._tasks, {task.changelog: task for task in tasks}
        if not self._tasks:
            self._has_tasks.clear()
            return
        if any(task is not before.get(partition) for partition, task in self._tasks.items()):
            self._assign()
        # Otherwise some are not followed any more: what is being fetched for the others stays good.
        urgent = any(task.state is TaskState.RESTORING for task in self._tasks.values())
        for partition in self._assigned:
            task = self._tasks.get(partition)
            waits = task is None or (urgent and task.state is TaskState.STANDBY)
            change = self._consumer.pause if waits else self._consumer.resume
            change(ConsumerPartition(*partition))
        self._has_tasks.set()

    def _assign(self) -> None:
        """Forgets the ends that the consumer knew of its partitions, too."""
        self._assigned = frozenset(self._tasks)
        self._consumer.assign([ConsumerPartition(*partition) for partition in self._tasks])
        self._positions = {}
        self._seek()

    def _seek(self) -> None:
        """Have the consumer's positions be the tasks'."""
        for partition, task in self._tasks.items():
            if self._positions.get(partition) != task.position:
                self._consumer.seek(ConsumerPartition(*partition), task.position)
                self._positions[partition] = task.position

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._has_tasks.wait()
            await self._poll()
            # As long as the consumer has something it gives it without waiting.
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
                continue  # it was given away, or has started over, while this waited
            task.restore(records)
            self._count_bytes(task, sum(len(r.key) + len(r.value or b"") for r in records))
        await self._update_tasks()

    def _count_bytes(self, task: Task, size: int) -> None:
        restored, followed = self.bytes_read
        if task.state is TaskState.RESTORING:
            self.bytes_read = ChangelogBytes(restored + size, followed)
        else:
            self.bytes_read = ChangelogBytes(restored, followed + size)

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
                self._on_lag(task)

    async def _start_over(self, offsets: Mapping[ConsumerPartition, int]) -> None:
        """For those that want an offset that there is not; the consumer may tell it of what it was
        assigned before."""
        beginnings = await self._consumer.beginning_offsets(list(offsets))
        for partition, offset in beginnings.items():
            task = self._tasks.get(TopicPartition(*partition))
            if task is not None and task.position == offsets[partition]:
                task.start_over(offset)
        self._seek()
