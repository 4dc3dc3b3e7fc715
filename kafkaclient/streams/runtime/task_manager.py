"""All tasks of this instance: takes up assignments, and what happens to each task."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition as ConsumerPartition

from kafkaclient.streams.config import LATEST
from kafkaclient.streams.runtime.failures import event_for
from kafkaclient.streams.runtime.task import Task, TaskOptions
from kafkaclient.streams.runtime.task_states import TaskEvent, TaskState
from kafkaclient.streams.runtime.worker import Worker

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

_RETRY_BACKOFF_S = 0.5
"""Seconds until a task that has failed is restored anew."""
_TIMEOUT_S = 5.0
"""Seconds for processors to end that were cancelled at the end of the instance."""


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
        options: TaskOptions | None = None,
    ) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self.workers: dict[TaskId, Worker] = {}
        """Of the running tasks."""
        self.room_available = asyncio.Event()
        """Set when a task can take more records, or when another task runs."""
        self._may_work = asyncio.Event()
        self._topology = topology
        self._directory = directory
        self._consumer = consumer
        self._reader = reader
        self._ends = ends
        self._make_writer = make_writer
        self._on_migrated = on_migrated
        self._crash = crash
        self._disk = disk
        self._options = options or TaskOptions()
        self._loop = asyncio.get_running_loop()
        self._activations: dict[TaskId, asyncio.Task[None]] = {}
        self._writer_stops: dict[TaskId, asyncio.Task[None]] = {}
        """Writers that are being stopped, or were."""
        self._opening: set[TaskId] = set()
        self._store_closings: dict[TaskId, Future[None]] = {}
        """Stores that are being closed, or were."""
        self._cancelled_workers: set[asyncio.Task[None]] = set()
        """Workers that were cancelled, and are not at their end yet."""
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
        closing = {task for task, work in self._store_closings.items() if not work.done()}
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
            asyncio.wrap_future(self._disk.submit(self._open_task, task_id))
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

    def _open_task(self, task_id: TaskId) -> Task:
        """In a thread."""
        closing = self._store_closings.get(task_id)
        if closing is not None:
            closing.result()
        directory = self._directory.task(task_id)
        return Task(task_id, self._topology, directory, self._disk, self._options)

    def handle(self, task: Task, event: TaskEvent) -> None:
        """Something happened to a task."""
        before = task.state
        task.advance(event)
        if before is task.state and event is not TaskEvent.FAILED:
            return
        if before in (TaskState.RESTORING, TaskState.RUNNING) and event is not TaskEvent.RESTORED:
            self._deactivate(task)
        _ON_ENTER[task.state](self, task)
        if event not in (TaskEvent.ASSIGNED_ACTIVE, TaskEvent.ASSIGNED_STANDBY, TaskEvent.REVOKED):
            self._follow()

    def _follow(self) -> None:
        self._reader.follow([task for task in self.tasks.values() if task.follows_changelog])

    def _deactivate(self, task: Task) -> None:
        self._pause(task)
        worker = self.workers.pop(task.id, None)
        if worker is not None:
            worker.cancel()
            self._cancelled_workers.add(worker.asyncio_task)
            worker.asyncio_task.add_done_callback(self._cancelled_workers.discard)
        activation = self._activations.pop(task.id, None)
        if activation is not None and activation is not asyncio.current_task():
            activation.cancel()
        if task.writer is not None:
            before = self._writer_stops.get(task.id)
            ending = _stop_writer(task.writer, task, before)
            self._writer_stops[task.id] = asyncio.create_task(
                ending, name=f"kafkaclient-end-{task.id}"
            )
            task.writer = None

    def _enter_restoring(self, task: Task) -> None:
        self._activations[task.id] = asyncio.create_task(
            self._activate(task), name=f"kafkaclient-activate-{task.id}"
        )

    def _enter_running(self, task: Task) -> None:
        self._activations.pop(task.id, None)
        self.workers[task.id] = Worker(task, self._may_work, self.room_available.set, self.failed)
        self.seek(task)
        self.room_available.set()

    def seek(self, task: Task) -> None:
        """Have a running task's records fetched from where it is."""
        source = ConsumerPartition(*task.source)
        if source in self._consumer.assignment():
            task.fetched_from = task.source_offset
            self._consumer.seek(source, task.source_offset)
            self._consumer.resume(source)

    def _enter_standby(self, task: Task) -> None:
        """It follows its changelog, which is the reader's work."""

    def _enter_closed(self, task: Task) -> None:
        del self.tasks[task.id]
        self._store_closings[task.id] = closing = self._disk.submit(task.close)
        closing.add_done_callback(self._on_store_closed)

    def _on_store_closed(self, closing: Future[None]) -> None:
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
            await asyncio.sleep(_RETRY_BACKOFF_S)
            self.failed(task, error)
        else:
            self.handle(task, TaskEvent.RESTORED)

    async def _make_ready(self, task: Task) -> None:
        if ending := self._writer_stops.get(task.id):
            await asyncio.wait({ending})  # which goes on if this is cancelled
        # The order is what makes it exact: once the writer has started nobody else can write to
        # this task's changelog or commit its offset, and what an earlier owner left is decided.
        task.writer = self._make_writer(task)
        await task.writer.start()
        await task.wait_until_restored((await self._ends([task.changelog]))[task.changelog])
        offset = await task.writer.committed(task.source)
        if offset:
            # Asked afterwards: what is committed until then is not beyond the end of the partition
            # unless it was created again.
            end = (await self._ends([task.source]))[task.source]
            if offset > end:
                _log.warning(
                    "task %s: the group has committed offset %d of %s-%d, which ends at %d: the "
                    "topic was created again, or has lost records. The task begins at its %s "
                    "offset (auto.offset.reset)",
                    *(task.id, offset, *task.source, end, self._options.auto_offset_reset),
                )
                offset = None
        if offset is None:
            offset = await self._first_offset(task)
        task.source_offset = offset

    async def _first_offset(self, task: Task) -> int:
        """Where a task begins that has committed nothing."""
        source = ConsumerPartition(*task.source)
        if self._options.auto_offset_reset == LATEST:
            # Kept at once: asked again after a failure, it would leave out what came meanwhile.
            offset: int = (await self._consumer.end_offsets([source]))[source]
            await task.commit_first_offset(offset)
        else:
            offset = (await self._consumer.beginning_offsets([source]))[source]
        return offset

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

    def wanted_partitions(self) -> dict[TopicPartition, object]:
        """What should be fetched now; the value is for :meth:`give`."""
        return {
            worker.task.source: worker.fetch_token
            for worker in self.workers.values()
            if worker.has_room
        }

    def deliver(
        self, found: Mapping[TopicPartition, Sequence[Any]], wanted: Mapping[TopicPartition, object]
    ) -> None:
        """Have tasks process what was fetched, each one's records in order. ``wanted`` is from
        before it was fetched: records of a task that has moved since, or begun anew, are fetched
        again."""
        for worker in self.workers.values():
            source = worker.task.source
            if source not in found:
                continue
            if wanted.get(source) is worker.fetch_token:
                worker.add_records(found[source])
            else:
                worker.discard_records()
                self.seek(worker.task)

    def check_slow_records(self) -> None:
        """To be called from time to time."""
        for worker in self.workers.values():
            worker.task.check_slow_record()

    def refresh_checkpoints(self) -> None:
        """To be called from time to time, less often."""
        for task in self.tasks.values():
            task.refresh_checkpoint()

    async def suspend(self, timeout_s: float) -> None:
        """Have all tasks end their work at the next record, and commit it. A record that takes
        longer than ``timeout_s`` goes on being processed, and its task commits nothing before
        :meth:`resume`; if the task is given up instead, it begins again at its committed offset."""
        self._may_work.clear()
        workers = list(self.workers.values())
        suspended = await asyncio.gather(*(worker.suspend(timeout_s) for worker in workers))
        for worker, is_suspended in zip(workers, suspended, strict=True):
            worker.discard_records()
            if not is_suspended:
                _log.info("task %s: goes on with a record that takes long", worker.task.id)

    def resume(self) -> None:
        """Let work begin, or go on."""
        self._may_work.set()
        self.room_available.set()

    def stop_work(self) -> None:
        """Have no record begun any more."""
        self._may_work.clear()

    # --- the end --------------------------------------------------------------------------------

    async def end_writers(self) -> None:
        """Nothing more is written: what is not committed is dropped. No assignment is taken up from
        here on."""
        self._ended = True
        activations = list(self._activations.values())
        for task in self.tasks.values():
            if task.is_active:
                self.handle(task, TaskEvent.STOPPED)
        await asyncio.gather(*activations, *self._writer_stops.values(), return_exceptions=True)
        if self._cancelled_workers:
            _, left = await asyncio.wait(self._cancelled_workers, timeout=_TIMEOUT_S)
            for work in left:
                _log.warning("%s does not end: its processor ignores that it is cancelled", work)

    def close(self) -> None:
        """Every store with its checkpoint; an error is raised when all have been tried."""
        for task in list(self.tasks.values()):
            self.handle(task, TaskEvent.REVOKED)
        with ExitStack() as results:
            for closing in self._store_closings.values():
                results.callback(closing.result)


_ON_ENTER = {
    TaskState.RESTORING: TaskManager._enter_restoring,
    TaskState.RUNNING: TaskManager._enter_running,
    TaskState.STANDBY: TaskManager._enter_standby,
    TaskState.CLOSED: TaskManager._enter_closed,
}


def _roles(
    active: Collection[TaskId], standby: Collection[TaskId]
) -> tuple[tuple[set[TaskId], TaskEvent], ...]:
    return (set(active), TaskEvent.ASSIGNED_ACTIVE), (set(standby), TaskEvent.ASSIGNED_STANDBY)


async def _stop_writer(writer: Writer, task: Task, before: asyncio.Task[None] | None) -> None:
    if before is not None:
        await before
    try:
        await writer.stop()
    except Exception as error:  # noqa: BLE001 - it is not used again, whatever it says
        _log.warning("task %s: its writer could not be stopped: %s", task.id, error)
