"""What happens in an application's runs: counted, logged if slow, and told to listeners."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kafkaclient.streams.metrics import AppState, StreamsMetrics
from kafkaclient.streams.tasks import TaskEvent, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.reader.batch import FetchedRecord
    from kafkaclient.streams.metrics import RestoreListener, StateListener
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.types import TopicPartition


_log = logging.getLogger(__name__)


class _Restoring:
    """A changelog partition from which a store is restored."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.records: int = 0


class TaskProgress:
    """What a task has processed since its last report, and whether its record blocks the event
    loop. Called for each record, so it is cheap. Pure: the time is an argument.

    A processor may await as long as it likes: nothing of its record is in a transaction before it
    has returned.
    """

    __slots__ = (
        *("_began_at", "_loop_seen_at", "_record", "_session_timeout_s", "_task"),
        *("dropped", "records", "seconds", "slowest_s"),
    )

    def __init__(self, task: TaskId, session_timeout_s: float) -> None:
        self._task = task
        self._session_timeout_s = session_timeout_s
        self._record: FetchedRecord | None = None
        """The record that is being processed. None: there is none."""
        self._began_at = self._loop_seen_at = 0.0
        """When its processing began, and when the event loop last ran during it."""
        self.reset()

    def reset(self) -> None:
        """Begin at zero again."""
        self.records: int = 0
        self.dropped: int = 0
        self.seconds: float = 0.0
        self.slowest_s: float = 0.0

    def start(self, record: FetchedRecord, now: float) -> None:
        """The processing of a record begins."""
        self._record, self._began_at, self._loop_seen_at = record, now, now

    def end(self, now: float) -> None:
        """The record was processed, or dropped."""
        if now - self._loop_seen_at > self._session_timeout_s:
            self.check(now)
        self._record = None
        seconds = now - self._began_at
        self.records += 1
        self.seconds += seconds
        if seconds > self.slowest_s:  # noqa: PLR1730 - faster than max
            self.slowest_s = seconds

    def stop(self) -> None:
        """The task stops running."""
        self._record = None

    def check(self, now: float) -> None:
        """Log the current record if it has blocked the event loop for longer than a session."""
        if self._record is None:
            return
        blocked_s, self._loop_seen_at = now - self._loop_seen_at, now
        if blocked_s > self._session_timeout_s:
            _log.warning(
                "task %s: while the record at %s-%d, offset %d, was processed, the event loop was "
                "blocked for %.1f s, longer than session.timeout.ms, %g s: without heartbeats the "
                "group removes this instance and reassigns its tasks. Run blocking code with "
                "asyncio.to_thread or in a process pool, or raise session_timeout_ms",
                *(self._task, self._record.topic, self._task.partition, self._record.offset),
                *(blocked_s, self._session_timeout_s),
            )


class Observer:
    """Owns the application's state. One observer sees all runs of an application.

    The runtime calls it on the event loop. Its methods raise nothing: an exception of a listener is
    logged. Without arguments it only counts.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        state_listener: StateListener | None = None,
        restore_listener: RestoreListener | None = None,
    ) -> None:
        self.metrics: StreamsMetrics = StreamsMetrics(clock)
        self.state: AppState = AppState.CREATED
        self._clock = clock
        self._state_listener = state_listener
        self._restore_listener = restore_listener
        self._tasks: dict[TaskId, TaskState] = {}
        self._restoring: defaultdict[TaskId, dict[TopicPartition, _Restoring]] = defaultdict(dict)
        self._joining_since: float | None = None
        """While the instance joins its group: since when, by the clock."""
        self._assigned: frozenset[TaskId] | None = None
        """The active tasks of the last assignment. None: there is none."""

    # --- runs -----------------------------------------------------------------------------------

    def run_started(self) -> None:
        """The instance is about to join its group."""
        self._tasks.clear()
        self._assigned = self._joining_since = None
        self._enter(AppState.REBALANCING)

    def run_ending(self) -> None:
        """The instance begins to shut down."""
        self._enter(AppState.PENDING_SHUTDOWN)

    def run_ended(self, error: BaseException | None) -> None:
        """The instance has ended; ``error``: what it failed with."""
        self._tasks.clear()
        self._restoring.clear()
        self._enter(AppState.NOT_RUNNING if error is None else AppState.ERROR)

    # --- the group ------------------------------------------------------------------------------

    def joining(self) -> None:
        """The instance joins its group, perhaps again."""
        if self._joining_since is None:
            self._joining_since = self._clock()
        self._update_state()

    def assigned(self, active: Iterable[TaskId]) -> None:
        """The instance has applied its assignment: these active tasks, which may not run yet."""
        since, self._joining_since = self._joining_since, None
        if since is not None:
            self.metrics.rebalanced(self._clock() - since)
        self._assigned = frozenset(active)
        self._update_state()

    def lost(self) -> None:
        """The instance has lost its membership, and joins again."""
        self._assigned = None
        self.metrics.rebalance_failed()
        self._update_state()

    # --- tasks ----------------------------------------------------------------------------------

    def task_changed(
        self, task: TaskId, before: TaskState, event: TaskEvent, after: TaskState
    ) -> None:
        """A task has entered a state, perhaps the same again."""
        if after is TaskState.CLOSED:
            self._tasks.pop(task, None)
        else:
            self._tasks[task] = after
        if before is TaskState.RESTORING and (after is not before or event is TaskEvent.FAILED):
            self._restore_over(task, ended=event is TaskEvent.RESTORED)
        self._update_state()

    def worked(self, task: TaskId, progress: TaskProgress) -> None:
        """What a task has done since the last call; starts ``progress`` again."""
        if progress.records:
            self.metrics.processed(task, progress.records, progress.seconds, progress.slowest_s)
        if progress.dropped:
            self.metrics.dropped(task, progress.dropped)
        progress.reset()

    # --- changelogs -----------------------------------------------------------------------------

    def restore_started(
        self, task: TaskId, store: str, partition: TopicPartition, start: int, end: int
    ) -> None:
        """A store of an active task is restored. ``partition``: of its changelog."""
        self._restoring[task][partition] = _Restoring(store)
        if self._restore_listener is not None:
            self._tell(self._restore_listener.on_restore_start, partition, store, start, end)

    def changelog_read(
        self, task: TaskId, partition: TopicPartition, offset: int, records: int, nbytes: int
    ) -> None:
        """``records`` changes before ``offset`` were applied."""
        if not records:
            return
        is_restoring = self._tasks.get(task) is TaskState.RESTORING
        self.metrics.changelog_read(task, records, nbytes, is_restoring=is_restoring)
        if is_restoring and (restoring := self._restoring[task].get(partition)):
            restoring.records += records
            if self._restore_listener is not None:
                told = self._restore_listener.on_batch_restored
                self._tell(told, partition, restoring.store, offset, records)

    def _restore_over(self, task: TaskId, *, ended: bool) -> None:
        restoring = self._restoring.pop(task, {})
        self.metrics.restore_over(is_complete=ended)
        if (listener := self._restore_listener) is None:
            return
        told = listener.on_restore_end if ended else listener.on_restore_suspended
        for partition, each in restoring.items():
            self._tell(told, partition, each.store, each.records)

    # --- the state ------------------------------------------------------------------------------

    def _update_state(self) -> None:
        if self.state not in (AppState.REBALANCING, AppState.RUNNING):
            return
        running = {task for task, state in self._tasks.items() if state is TaskState.RUNNING}
        is_settled = (
            self._assigned is not None and self._joining_since is None and self._assigned <= running
        )
        self._enter(AppState.RUNNING if is_settled else AppState.REBALANCING)

    def _enter(self, state: AppState) -> None:
        before, self.state = self.state, state
        if before is not state:
            _log.info("the application is %s; it was %s", state.value, before.value)
            if self._state_listener is not None:
                self._tell(self._state_listener, state, before)

    def _tell(self, listener: Callable[..., object], *told: Any) -> None:
        try:
            listener(*told)
        except Exception:  # noqa: BLE001 - the listener is the application's code
            _log.exception("a listener failed: %r", listener)
