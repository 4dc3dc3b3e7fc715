"""All tasks of this instance: takes up assignments, and what happens to each task."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition as ConsumerPartition

from kafkaclient.streams.runtime.failures import event_for
from kafkaclient.streams.runtime.task import Task
from kafkaclient.streams.runtime.task_states import TaskEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from aiokafka import AIOKafkaConsumer

    from kafkaclient.streams.runtime.changelog_ends import ChangelogEnds
    from kafkaclient.streams.runtime.changelog_reader import ChangelogReader
    from kafkaclient.streams.runtime.writers import Writer
    from kafkaclient.streams.state.directory import StateDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import TopicPartition

__all__ = ["TaskManager"]

_log = logging.getLogger(__name__)

_BACKOFF = 0.5
"""Seconds until a task that has failed is restored anew."""


class TaskManager:
    """``make_writer`` gives a task's writer; ``on_migrated`` is told when only another assignment
    can help, ``crash`` when nothing can. Stores are opened, flushed and closed by ``disk``'s
    threads."""

    def __init__(
        self,
        topology: Topology,
        directory: StateDirectory,
        consumer: AIOKafkaConsumer,
        reader: ChangelogReader,
        ends: ChangelogEnds,
        *,
        make_writer: Callable[[Task], Writer],
        on_migrated: Callable[[], None],
        crash: Callable[[BaseException], None],
        disk: Executor,
    ) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self._topology = topology
        self._directory = directory
        self._consumer = consumer
        self._reader = reader
        self._ends = ends
        self._make_writer = make_writer
        self._on_migrated = on_migrated
        self._crash = crash
        self._disk = disk
        self._loop = asyncio.get_running_loop()
        self._activations: dict[TaskId, asyncio.Task[None]] = {}
        self._endings: dict[TaskId, asyncio.Task[None]] = {}
        """Writers that are being stopped, or were."""
        self._opening: set[TaskId] = set()
        self._closings: dict[TaskId, Future[None]] = {}
        """Stores that are being closed, or were."""
        self._ended = False

    def by_source(self) -> dict[TopicPartition, Task]:
        """The running tasks by what they read."""
        return {
            task.source: task for task in self.tasks.values() if task.state is TaskState.RUNNING
        }

    def running(self) -> list[TaskId]:
        return [task.id for task in self.by_source().values()]

    def in_use(self) -> set[TaskId]:
        """Whose directories are: also while a store is opened, or closed."""
        closing = {task for task, work in self._closings.items() if not work.done()}
        return self.tasks.keys() | self._opening | closing

    # --- assignments ----------------------------------------------------------------------------

    def assign(self, active: Collection[TaskId], standby: Collection[TaskId]) -> None:
        """Take up an assignment, as far as stores are open: :meth:`open` has to follow. What comes
        back in the same role goes on as if nothing was."""
        if self._ended:
            return
        for tasks, event in _roles(active, standby):
            for task_id in tasks & self.tasks.keys():
                self.handle(self.tasks[task_id], event)
        for task_id in self.tasks.keys() - {*active, *standby}:
            self.handle(self.tasks[task_id], TaskEvent.REVOKED)
        self._follow()

    async def open(self, active: Collection[TaskId], standby: Collection[TaskId]) -> None:
        """Open what the assignment has that is not open yet; what is to process comes first."""
        for tasks, event in _roles(active, standby):
            opened = await self._open(tasks)
            for task in opened:
                self.handle(task, event)
            if opened:
                self._follow()

    async def prepare(self, tasks: Iterable[TaskId]) -> None:
        """Before the group is joined, while others still process: open what is likely to be
        assigned."""
        await self._open(tasks)

    async def _open(self, tasks: Iterable[TaskId]) -> list[Task]:
        """Those that were not open yet. Raises the first error when all have been tried."""
        self._opening = set(tasks) - self.tasks.keys()
        opening = [
            asyncio.wrap_future(self._disk.submit(self._opened, task_id))
            for task_id in sorted(self._opening)
        ]
        found = await asyncio.gather(*opening, return_exceptions=True)
        self._opening = set()
        opened = [task for task in found if isinstance(task, Task)]
        if self._ended:
            for task in opened:
                task.close()
            return []
        self.tasks |= {task.id: task for task in opened}
        for error in found:
            if isinstance(error, BaseException):
                raise error
        return opened

    def _opened(self, task_id: TaskId) -> Task:
        """In a thread."""
        closing = self._closings.get(task_id)
        if closing is not None:
            closing.result()
        return Task(task_id, self._topology, self._directory.task(task_id), self._disk)

    def handle(self, task: Task, event: TaskEvent) -> None:
        """Something happened to a task."""
        before = task.state
        task.advance(event)
        if before is task.state and event is not TaskEvent.FAILED:
            return
        if before in (TaskState.RESTORING, TaskState.RUNNING) and event is not TaskEvent.RESTORED:
            self._end_activity(task)
        _ENTER[task.state](self, task)
        if event not in (TaskEvent.ASSIGNED_ACTIVE, TaskEvent.ASSIGNED_STANDBY, TaskEvent.REVOKED):
            self._follow()

    def _follow(self) -> None:
        self._reader.follow([task for task in self.tasks.values() if task.follows_changelog])

    def _end_activity(self, task: Task) -> None:
        self._pause(task)
        activation = self._activations.pop(task.id, None)
        if activation is not None and activation is not asyncio.current_task():
            activation.cancel()
        if task.writer is not None:
            before = self._endings.get(task.id)
            ending = _end(task.writer, task, before)
            self._endings[task.id] = asyncio.create_task(ending, name=f"kafkaclient-end-{task.id}")
            task.writer = None

    def _enter_restoring(self, task: Task) -> None:
        self._activations[task.id] = asyncio.create_task(
            self._activate(task), name=f"kafkaclient-activate-{task.id}"
        )

    def _enter_running(self, task: Task) -> None:
        self._activations.pop(task.id, None)
        source = ConsumerPartition(*task.source)
        if source in self._consumer.assignment():
            self._consumer.seek(source, task.source_offset)
            self._consumer.resume(source)

    def _enter_standby(self, task: Task) -> None:
        """It follows its changelog, which is the reader's work."""

    def _enter_closed(self, task: Task) -> None:
        del self.tasks[task.id]
        self._closings[task.id] = closing = self._disk.submit(task.close)
        closing.add_done_callback(self._closed)

    def _closed(self, closing: Future[None]) -> None:
        """In a thread."""
        error = closing.exception()
        if error is not None and not self._ended:
            self._loop.call_soon_threadsafe(self._crash, error)

    def _pause(self, task: Task) -> None:
        source = ConsumerPartition(*task.source)
        if source in self._consumer.assignment():
            self._consumer.pause(source)

    # --- from restoring to running --------------------------------------------------------------

    async def _activate(self, task: Task) -> None:
        try:
            await self._make_ready(task)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, somebody is told
            await asyncio.sleep(_BACKOFF)
            self.failed(task, error)
        else:
            self.handle(task, TaskEvent.RESTORED)

    async def _make_ready(self, task: Task) -> None:
        if ending := self._endings.get(task.id):
            await asyncio.wait({ending})  # which goes on if this is cancelled
        # The order is what makes it exact: once the writer has started nobody else can write to
        # this task's changelog or commit its offset, and what an earlier owner left is decided.
        task.writer = self._make_writer(task)
        await task.writer.start()
        await task.restored((await self._ends([task.changelog]))[task.changelog])
        offset = await task.writer.committed(task.source)
        if offset is None:
            source = ConsumerPartition(*task.source)
            offset = (await self._consumer.beginning_offsets([source]))[source]
        task.source_offset = offset

    def failed(self, task: Task, error: BaseException) -> None:
        """An error of the task's work, unless it has been taken away meanwhile."""
        if self.tasks.get(task.id) is not task or not task.is_active:
            return
        event = event_for(error)
        if event is None:
            self._crash(error)
            return
        _log.warning("task %s %s: %s", task.id, event.value, error)
        self.handle(task, event)
        if event is TaskEvent.MIGRATED:
            self._on_migrated()

    # --- work -----------------------------------------------------------------------------------

    async def process(
        self, found: Mapping[TopicPartition, Sequence[Any]], keep_going: Callable[[], bool]
    ) -> None:
        """Tasks side by side, each one's records in order."""
        running = self.by_source()
        work = {running[source]: records for source, records in found.items() if source in running}
        await self._for_each(
            list(work), [task.process(records, keep_going) for task, records in work.items()]
        )

    async def commit(self) -> None:
        """Commit every running task."""
        dirty = [task for task in self.by_source().values() if task.is_dirty]
        await self._for_each(dirty, [task.commit() for task in dirty])

    async def _for_each(self, tasks: Sequence[Task], work: Sequence[Any]) -> None:
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        for task, outcome in zip(tasks, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self.failed(task, outcome)

    # --- the end --------------------------------------------------------------------------------

    async def end_writers(self) -> None:
        """Nothing more is written: what is not committed is dropped. No assignment is taken up from
        here on."""
        self._ended = True
        activations = list(self._activations.values())
        for task in self.tasks.values():
            if task.is_active:
                self.handle(task, TaskEvent.STOPPED)
        await asyncio.gather(*activations, *self._endings.values(), return_exceptions=True)

    def close(self) -> None:
        """Every store with its checkpoint; an error is raised when all have been tried."""
        for task in list(self.tasks.values()):
            self.handle(task, TaskEvent.REVOKED)
        with ExitStack() as results:
            for closing in self._closings.values():
                results.callback(closing.result)


_ENTER = {
    TaskState.RESTORING: TaskManager._enter_restoring,
    TaskState.RUNNING: TaskManager._enter_running,
    TaskState.STANDBY: TaskManager._enter_standby,
    TaskState.CLOSED: TaskManager._enter_closed,
}


def _roles(
    active: Collection[TaskId], standby: Collection[TaskId]
) -> tuple[tuple[set[TaskId], TaskEvent], ...]:
    return (set(active), TaskEvent.ASSIGNED_ACTIVE), (set(standby), TaskEvent.ASSIGNED_STANDBY)


async def _end(writer: Writer, task: Task, before: asyncio.Task[None] | None) -> None:
    if before is not None:
        await before
    try:
        await writer.stop()
    except Exception as error:  # noqa: BLE001 - it is not used again, whatever it says
        _log.warning("task %s: its writer could not be stopped: %s", task.id, error)
