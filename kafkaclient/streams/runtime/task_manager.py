"""Manages all tasks of this instance: applies assignments and task events."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kafkaclient.cluster.topics import ends_from
from kafkaclient.streams.runtime.committers import Committers
from kafkaclient.streams.runtime.refusals import RefusedRecordsError
from kafkaclient.streams.runtime.task import Task, TaskOptions
from kafkaclient.streams.runtime.worker import Turns, Worker
from kafkaclient.streams.tasks import TaskEvent, TaskState, is_recoverable
from kafkaclient.time_limit import cancel_and_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Executor, Future
    from uuid import UUID

    from kafkaclient.cluster.topics import FetchEnds
    from kafkaclient.group.commit_gate import CommitGate
    from kafkaclient.streams.runtime.changelog_reader import ChangelogReader
    from kafkaclient.streams.runtime.inputs import Inputs, Row
    from kafkaclient.streams.runtime.outputs import Output
    from kafkaclient.streams.state_directory import StateDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)


_RETRY_BACKOFF_S = 0.5  # delay until a failed task is restored again
_CANCEL_TIMEOUT_S = 5.0  # how long a cancelled processor may take at the end of the instance


class TaskManager:
    """The tasks of this instance.

    ``crash`` is called when the instance must end. ``disk``'s threads open, flush and close stores.
    """

    def __init__(
        self,
        topology: Topology,
        directory: StateDirectory,
        inputs: Inputs,
        changelog_reader: ChangelogReader,
        fetch_ends: FetchEnds,
        output: Output,
        gate: CommitGate,
        *,
        crash: Callable[[BaseException], None],
        disk: Executor,
        options: TaskOptions | None = None,
    ) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self.workers: dict[TaskId, Worker] = {}
        """Workers of the running tasks."""
        self._may_work = asyncio.Event()
        self._may_work.set()
        self._active: Mapping[TaskId, Collection[TopicPartition]] = {}
        """The tasks of the last assignment with their input partitions; what is opened later is
        placed accordingly."""
        self._standby: set[TaskId] = set()
        self._topology = topology
        self._directory = directory
        self._inputs = inputs
        self._changelog_reader = changelog_reader
        self._fetch_ends = fetch_ends
        self.crash = crash
        self._disk = disk
        self._options = options or TaskOptions()
        self._observer = self._options.observer
        self._turns = Turns(self._options.clock)
        self.committers = Committers(
            output, gate, self._options, on_failed=self.failed, crash=crash
        )
        self._loop = asyncio.get_running_loop()
        self._activations: dict[TaskId, asyncio.Task[None]] = {}
        self._opening: set[TaskId] = set()
        self._store_closings: dict[TaskId, Future[None]] = {}
        """Task -> the close of its store, done or in progress."""
        self._cancelled_workers: set[asyncio.Task[None]] = set()
        """Cancelled workers that have not ended yet."""
        self._leaving: dict[TaskId, asyncio.Task[None]] = {}
        """Running tasks that are taken away -> their last commit."""
        self._ended = False

    def running(self) -> list[TaskId]:
        return [task.id for task in self.tasks.values() if task.state is TaskState.RUNNING]

    def in_use(self) -> set[TaskId]:
        """Tasks whose directories are in use, including stores that are being opened or closed."""
        closing = {task for task, work in self._store_closings.items() if not work.done()}
        return self.tasks.keys() | self._opening | closing

    # --- assignments ----------------------------------------------------------------------------

    def assign(
        self, active: Mapping[TaskId, Collection[TopicPartition]], standby: Collection[TaskId]
    ) -> list[Worker]:
        """Apply an assignment to the tasks whose stores are open. ``active``: task -> its input
        partitions. A task that keeps its role and its partitions continues without interruption.
        Returns the workers of running tasks that are taken away, or get other partitions because a
        topic has grown: they are still at work until :meth:`give_up`."""
        if self._ended:
            return []
        self._active, self._standby = active, set(standby)
        leaving = [w for w in self.workers.values() if not self._keeps_sources(w.task)]
        for task in list(self.tasks.values()):
            if task.id not in self.workers or self._keeps_sources(task):
                self._place(task)
        self._follow()
        return leaving

    @property
    def leaving_sources(self) -> set[TopicPartition]:
        """Input partitions of tasks that are taken away, and have not been given up yet."""
        return {p for each in self._leaving if each in self.tasks for p in self.tasks[each].sources}

    async def give_up(
        self, leaving: Collection[Worker], record_timeout_s: float, timeout_s: float | None = None
    ) -> Collection[asyncio.Task[None]]:
        """Commit and end the work of tasks that are taken away. If a record takes longer than
        ``record_timeout_s``, its task restarts elsewhere at its committed offset. Returns the work
        for tasks whose commit takes longer than ``timeout_s``, because a broker does not take their
        records: it goes on."""
        for worker in leaving:
            if worker.task.id not in self._leaving:
                self._leaving[worker.task.id] = asyncio.create_task(
                    self._give_up(worker, record_timeout_s),
                    name=f"kafkaclient-leave-{worker.task.id}",
                )
        work = [self._leaving[worker.task.id] for worker in leaving]
        if not work:
            return ()
        done, late = await asyncio.wait(work, timeout=timeout_s)
        for each in done:
            each.result()
        return late

    async def _give_up(self, worker: Worker, record_timeout_s: float) -> None:
        task = worker.task
        try:
            await self._finish_and_commit_one(worker, record_timeout_s)
        finally:
            del self._leaving[task.id]
        if self.tasks.get(task.id) is not task or self._ended:
            return
        if task.id in self._active and self.workers.get(task.id) is worker:
            # It was assigned to this instance again, or gets other partitions.
            self.handle(task, TaskEvent.ASSIGNED_STANDBY)
        self._place(task)
        self._follow()

    def _place(self, task: Task) -> None:
        """Give a task the role that the assignment has for it."""
        if task.id in self._active:
            if not self._keeps_sources(task):
                if task.is_active:
                    self.handle(task, TaskEvent.ASSIGNED_STANDBY)
                task.take_sources(self._active[task.id])
            self.handle(task, TaskEvent.ASSIGNED_ACTIVE)
        elif task.id in self._standby:
            self.handle(task, TaskEvent.ASSIGNED_STANDBY)
        else:
            self.handle(task, TaskEvent.REVOKED)

    def _keeps_sources(self, task: Task) -> bool:
        return set(self._active.get(task.id, ())) == set(task.sources)

    def lose(self) -> None:
        """This member has lost its active tasks: others may run them. Nothing is committed; the
        copies stay as standbys."""
        self._standby |= self._active.keys()
        self._active = {}
        for task in list(self.tasks.values()):
            if task.is_active:
                self.handle(task, TaskEvent.LOST)

    async def open(self) -> None:
        """Open the assignment's stores that are not open yet, active tasks first."""
        for tasks in (self._active, self._standby):
            for task in await self.open_stores(tasks):
                self._place(task)
            self._follow()

    async def open_stores(self, tasks: Iterable[TaskId]) -> list[Task]:
        """Open the tasks that are not open yet, and return them. All are tried before the first
        error is raised."""
        self._opening = set(tasks) - self.tasks.keys()
        opening = [self._disk.submit(self._open_task, task_id) for task_id in sorted(self._opening)]
        try:
            found = await asyncio.gather(*map(asyncio.wrap_future, opening), return_exceptions=True)
        except asyncio.CancelledError:
            for each in opening:  # the threads go on
                each.add_done_callback(_close_opened)
            raise
        finally:
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
        """Runs in a thread of ``disk``."""
        if closing := self._store_closings.get(task_id):
            closing.result()
        directory = self._directory.task(task_id)
        return Task(
            task_id, self._topology, directory, self._disk, self.committers.output, self._options
        )

    def handle(self, task: Task, event: TaskEvent) -> None:
        """Apply an event to a task."""
        before = task.state
        task.advance(event)
        self._observer.task_changed(task.id, before, event, task.state)
        if before is task.state and event is not TaskEvent.FAILED:
            return
        if before in (TaskState.RESTORING, TaskState.RUNNING) and event is not TaskEvent.RESTORED:
            self._deactivate(task)
        match task.state:
            case TaskState.RESTORING:
                self._activations[task.id] = asyncio.create_task(
                    self._activate(task, event), name=f"kafkaclient-activate-{task.id}"
                )
            case TaskState.RUNNING:
                self._start_worker(task)
            case TaskState.CLOSED:
                self._close_store(task)
        if event not in (TaskEvent.ASSIGNED_ACTIVE, TaskEvent.ASSIGNED_STANDBY, TaskEvent.REVOKED):
            self._follow()

    def _follow(self) -> None:
        """Read the changelogs of the tasks that need it: once for all tasks of an assignment,
        otherwise after each event."""
        following = (TaskState.RESTORING, TaskState.STANDBY)
        self._changelog_reader.follow(
            [task for task in self.tasks.values() if task.state in following]
        )

    def _deactivate(self, task: Task) -> None:
        for source in task.sources:
            self._inputs.remove(source)
        if worker := self.workers.pop(task.id, None):
            worker.cancel()
            self._cancelled_workers.add(worker.asyncio_task)
            worker.asyncio_task.add_done_callback(self._cancelled_workers.discard)
        activation = self._activations.pop(task.id, None)
        if activation is not None and activation is not asyncio.current_task():
            activation.cancel()
        self.committers.of(task).drop(task)

    def _start_worker(self, task: Task) -> None:
        self._activations.pop(task.id, None)
        self.workers[task.id] = Worker(
            task,
            self.committers.of(task),
            self._turns,
            self._may_work,
            self._inputs.wake,
            self.failed,
        )
        for source, offset in task.offsets.items():
            self._inputs.add(source, offset, task.topic_ids[source])

    def _close_store(self, task: Task) -> None:
        del self.tasks[task.id]
        self._store_closings[task.id] = closing = self._disk.submit(task.close)
        closing.add_done_callback(self._on_store_closed)

    def _on_store_closed(self, closing: Future[None]) -> None:
        """Runs in a thread of ``disk``."""
        error = closing.exception()
        if error is not None and not self._ended:
            self._loop.call_soon_threadsafe(self.crash, error)

    # --- from restoring to running --------------------------------------------------------------

    async def _activate(self, task: Task, event: TaskEvent) -> None:
        if event is TaskEvent.FAILED and task.failures > 1:
            await asyncio.sleep(_RETRY_BACKOFF_S)
        try:
            await self._make_ready(task)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - failed() reports it
            self.failed(task, error)
        else:
            self.handle(task, TaskEvent.RESTORED)

    async def _make_ready(self, task: Task) -> None:
        # Exactly once depends on this order. The committed offset is final: earlier owners of the
        # task cannot commit any more. All changes before it are in the changelog, though perhaps
        # without their transaction's marker: the end includes open transactions.
        await self.committers.of(task).wait_until_settled(task)
        ids = await self._inputs.topic_ids({source.topic for source in task.sources})
        found = await self.committers.output.fetch_committed(task.sources, ids)
        if task.task_stores:
            await self._restore(task)
        offsets = {source: offset for source, offset in found.items() if offset is not None}
        if any(offsets.values()):
            # Fetched after the committed offsets, so they are not smaller unless a topic is new.
            for source, end in (await ends_from(self._fetch_ends, offsets)).items():
                if offsets[source] > end:
                    _log.warning(
                        "task %s: the group has committed offset %d of %s-%d, which ends at %d: "
                        "the topic was recreated or lost records. The task begins at the %s offset "
                        "(auto.offset.reset)",
                        *(task.id, offsets.pop(source), *source, end),
                        "latest" if self._inputs.begins_at_end(source) else "earliest",
                    )
        task.start_at(offsets, ids)
        if missing := [source for source in task.sources if source not in offsets]:
            await self._start_at_first(task, missing, ids)

    async def _restore(self, task: Task) -> None:
        """Restore the stores to the ends of their changelogs, until a later answer has the same
        ends: a broker may answer with a lower end than its partition's leader."""
        ends = {store.changelog: store.position for store in task.task_stores}
        ends = await ends_from(self._fetch_ends, ends, read_committed=False)
        for store in task.task_stores:
            end = ends[store.changelog]
            self._observer.restore_started(
                task.id, store.declared.name, store.changelog, store.position, end
            )
        grown = ends
        while grown:
            await task.wait_until_restored(ends)
            again = await ends_from(self._fetch_ends, ends, read_committed=False)
            grown = {changelog: end for changelog, end in again.items() if end > ends[changelog]}
            ends |= again

    async def _start_at_first(
        self, task: Task, sources: Sequence[TopicPartition], ids: Mapping[str, UUID]
    ) -> None:
        """Begin where a task begins that has not committed offsets of these inputs."""
        if any(store.position for store in task.task_stores):
            _log.warning(
                "task %s: the group has no committed offset of %s, and the task's stores have "
                "data. If the input is not new, its offsets were deleted or have expired "
                "(offsets.retention.minutes): records that are processed again change the stores "
                "again",
                *(task.id, ", ".join(f"{topic}-{number}" for topic, number in sources)),
            )
        at_end = [source for source in sources if self._inputs.begins_at_end(source)]
        at_first = [source for source in sources if source not in at_end]
        task.start_at({each: await self._inputs.beginning(each) for each in at_first}, ids)
        if at_end:
            # Committed now: after a failure, a later end offset would skip records.
            ends = await self._fetch_ends(at_end)
            task.start_at(ends, ids)  # all of them are in any commit
            committer = self.committers.of(task)
            for source, offset in ends.items():
                if added := committer.add(task, (), source, offset):
                    await added
            await committer.commit()

    def failed(self, task: Task, error: BaseException) -> None:
        """Handle an error of a task, unless the task has been taken away meanwhile."""
        if self.tasks.get(task.id) is not task or not task.is_active:
            return
        if is_recoverable(error):
            if not isinstance(error, RefusedRecordsError):
                task.failures += 1
            _log.warning("task %s failed: %s", task.id, error)
            self.handle(task, TaskEvent.FAILED)
        else:
            self.crash(error)

    # --- work -----------------------------------------------------------------------------------

    def wanted_partitions(self) -> set[TopicPartition]:
        """Input partitions whose tasks have room for records."""
        return {
            source
            for worker in self.workers.values()
            if worker.has_room
            for source in worker.task.sources
        }

    def deliver(self, found: Mapping[TopicPartition, Sequence[Row]]) -> None:
        """Pass fetched records to the workers, and log slow records."""
        for worker in self.workers.values():
            worker.task.check_slow_record()
            sources = worker.task.sources
            for source in sources:
                if records := found.get(source):
                    worker.add_records(records, min(map(self._inputs.most_rows, sources)))

    async def finish_and_commit(self, timeout_s: float) -> None:
        """Finish the current records and commit all tasks. If a record takes longer than
        ``timeout_s``, it is not committed."""
        self.stop_work()
        await self._finish_and_commit(list(self.workers.values()), timeout_s)

    async def _finish_and_commit(self, workers: Collection[Worker], timeout_s: float) -> None:
        await asyncio.gather(*(self._finish_and_commit_one(each, timeout_s) for each in workers))

    async def _finish_and_commit_one(self, worker: Worker, timeout_s: float) -> None:
        if not await worker.suspend(timeout_s):
            _log.info(
                "task %s: its record is still being processed, and is not committed",
                worker.task.id,
            )
        await self.committers.of(worker.task).commit()

    def stop_work(self) -> None:
        """The instance ends: start no further record."""
        self._may_work.clear()

    # --- shutdown -------------------------------------------------------------------------------

    async def end_work(self) -> None:
        """End all work; uncommitted changes are dropped. Later assignments are ignored."""
        self._ended = True
        await cancel_and_wait(*self._leaving.values())
        activations = list(self._activations.values())
        for task in self.tasks.values():
            if task.is_active:
                self.handle(task, TaskEvent.STOPPED)
        await asyncio.gather(*activations, self.committers.close(), return_exceptions=True)
        if self._cancelled_workers:
            _, left = await asyncio.wait(self._cancelled_workers, timeout=_CANCEL_TIMEOUT_S)
            for work in left:
                _log.warning("%s does not end: its processor ignores its cancellation", work)

    def close(self) -> None:
        """Close all stores, with checkpoints. Tries all, then raises an error."""
        for task in list(self.tasks.values()):
            self.handle(task, TaskEvent.REVOKED)
        with ExitStack() as results:
            for closing in self._store_closings.values():
                results.callback(closing.result)


def _close_opened(opening: Future[Task]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
