"""Follows the changelogs of all tasks that do not run: restores active ones, keeps up standbys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from aiokafka import TopicPartition as ConsumerPartition
from aiokafka.errors import OffsetOutOfRangeError

from kafkaclient.streams.runtime.task_states import TaskState
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiokafka import AIOKafkaConsumer

    from kafkaclient.streams.runtime.task import Task

__all__ = ["ChangelogBytes", "ChangelogReader"]

_POLL_MS = 100
_MOST_RECORDS = 5_000
"""In one go: about 10 ms of the event loop's time."""


class ChangelogBytes(NamedTuple):
    """Keys and values that an instance has read from changelogs since it was started."""

    restored: int
    """By active tasks, which waited for it."""
    followed: int
    """By standbys, and by copies that warmed up."""


class ChangelogReader:
    """Over a consumer of its own, without group, which reads committed records only. While a task
    is being restored, standbys wait."""

    def __init__(self, consumer: AIOKafkaConsumer, on_lag: Callable[[Task], None]) -> None:
        self._consumer = consumer
        self._on_lag = on_lag
        """Told how far a standby is."""
        self._tasks: dict[TopicPartition, Task] = {}
        self._changed = asyncio.Event()
        self._round = 0
        """Counts the changes of what is followed: each one voids what is being fetched."""
        self.bytes_read = ChangelogBytes(0, 0)

    def follow(self, tasks: Iterable[Task]) -> None:
        """From now on these, from their positions on."""
        self._tasks = {task.changelog: task for task in tasks}
        self._round += 1
        if not self._tasks:
            self._changed.clear()
            return
        self._consumer.assign([ConsumerPartition(*partition) for partition in self._tasks])
        urgent = any(task.state is TaskState.RESTORING for task in self._tasks.values())
        for partition, task in self._tasks.items():
            self._consumer.seek(ConsumerPartition(*partition), task.position)
            if urgent and task.state is TaskState.STANDBY:
                self._consumer.pause(ConsumerPartition(*partition))
        self._changed.set()

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where changelogs end, as far as they are committed."""
        wanted = [ConsumerPartition(*partition) for partition in partitions]
        found = await self._consumer.end_offsets(wanted)
        return {TopicPartition(*partition): offset for partition, offset in found.items()}

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._changed.wait()
            await self._step(self._round)

    async def _step(self, current: int) -> None:
        try:
            found = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=_MOST_RECORDS)
        except OffsetOutOfRangeError as error:
            await self._start_over(error.args[0], current)
            return
        if current != self._round:
            self._again(found)
            return
        for partition, records in found.items():
            task = self._tasks[TopicPartition(*partition)]
            task.restore(records)
            self._count(task, sum(len(r.key) + len(r.value or b"") for r in records))
        await self._settle(current)

    def _again(self, found: Iterable[ConsumerPartition]) -> None:
        """What is followed has changed while records were waited for. They may be of before, or of
        now, in which case the consumer would go on behind them: have them fetched once more."""
        for partition in found:
            task = self._tasks.get(TopicPartition(*partition))
            if task is not None:
                self._consumer.seek(partition, task.position)

    def _count(self, task: Task, size: int) -> None:
        restored, followed = self.bytes_read
        if task.state is TaskState.RESTORING:
            self.bytes_read = ChangelogBytes(restored + size, followed)
        else:
            self.bytes_read = ChangelogBytes(restored, followed + size)

    async def _settle(self, current: int) -> None:
        for partition, task in list(self._tasks.items()):
            known = ConsumerPartition(*partition)
            position = await self._consumer.position(known)
            if current != self._round:
                return
            stable = self._consumer.last_stable_offset(known)
            end = stable if stable is not None and stable >= 0 else self._consumer.highwater(known)
            task.reached(position, end)
            if task.state is TaskState.STANDBY and task.lag is not None:
                self._on_lag(task)

    async def _start_over(self, offsets: dict[ConsumerPartition, int], current: int) -> None:
        beginnings = await self._consumer.beginning_offsets(list(offsets))
        if current != self._round:
            return
        for partition, offset in beginnings.items():
            self._tasks[TopicPartition(*partition)].start_over(offset)
            self._consumer.seek(partition, offset)
