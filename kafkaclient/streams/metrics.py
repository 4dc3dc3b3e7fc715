"""The metrics of a streams application, and the listeners that are told what happens.

Sources in Java: ``ThreadMetrics``, ``TaskMetrics``, ``DefaultStateUpdater``,
``ConsumerCoordinator``. docs/reference/metrics.md has the table.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kafkaclient.errors import ConfigError
from kafkaclient.metrics.snapshot import Group
from kafkaclient.metrics.stats import Windowed, Windows
from kafkaclient.streams.tasks import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.metrics.snapshot import Values
    from kafkaclient.streams.tasks import TaskDescription, TaskId
    from kafkaclient.types import TopicPartition


# --- What an application can be told while it runs: its state -------------------------------------


class AppState(Enum):
    """The state of an instance (Java: ``KafkaStreams.State``)."""

    CREATED = "created"
    """:meth:`~kafkaclient.streams.StreamsApp.run` was not called yet."""
    REBALANCING = "rebalancing"
    """The instance joins its group, or at least one of its active tasks does not run yet. Tasks
    that stay on this instance go on."""
    RUNNING = "running"
    """All active tasks of this instance run."""
    PENDING_SHUTDOWN = "pending shutdown"
    """The instance commits, closes its stores and leaves its group."""
    NOT_RUNNING = "not running"
    """``run`` has ended, because it was stopped or cancelled."""
    ERROR = "error"
    """``run`` has ended with an error."""


StateListener: TypeAlias = Callable[[AppState, AppState], object]
"""Called with the new and the old state (Java: ``KafkaStreams.StateListener``)."""


class RestoreListener:
    """Is told how the stores of active tasks are restored from their changelogs (Java:
    ``StateRestoreListener``). Override the methods you need. They run on the event loop, so they
    must return soon; an exception is logged.

    For each changelog partition: a start, any number of batches, then an end or, if the task is
    taken away or fails meanwhile, a suspension.
    """

    def on_restore_start(self, partition: TopicPartition, store: str, start: int, end: int) -> None:
        """The changelog ``partition`` of ``store`` is restored from offset ``start`` to ``end``,
        which is excluded."""

    def on_batch_restored(
        self, partition: TopicPartition, store: str, offset: int, records: int
    ) -> None:
        """``records`` changes were applied; the next one has at least this ``offset``."""

    def on_restore_end(self, partition: TopicPartition, store: str, records: int) -> None:
        """The store is restored; ``records`` changes were applied in total."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, records: int) -> None:
        """The restoration stopped after ``records`` changes; another one may start."""


def checked_state_listener(listener: Any) -> StateListener | None:
    """The listener. Raises :class:`~kafkaclient.errors.ConfigError` if it cannot be one."""
    if listener is None:
        return None
    if not callable(listener) or isinstance(listener, type) or _is_async(listener):
        raise ConfigError(
            f"state_listener is {listener!r}; it must be a function (new, old), not a coroutine "
            "function"
        )
    try:
        inspect.signature(listener).bind(AppState.RUNNING, AppState.CREATED)
    except TypeError as error:
        raise ConfigError(
            f"state_listener {listener!r} cannot be called with the new and the old state: {error}"
        ) from None
    except ValueError:
        pass  # a builtin without signature
    return listener  # type: ignore[no-any-return]


def checked_restore_listener(listener: Any) -> RestoreListener | None:
    """The listener. Raises :class:`~kafkaclient.errors.ConfigError` if it cannot be one."""
    if listener is None:
        return None
    if not isinstance(listener, RestoreListener):
        raise ConfigError(
            f"restore_listener is {listener!r}; it must be an object of a subclass of "
            "kafkaclient.streams.RestoreListener"
        )
    for name in ("on_restore_start", "on_batch_restored", "on_restore_end", "on_restore_suspended"):
        if _is_async(getattr(listener, name)):
            raise ConfigError(f"restore_listener: {name} must not be a coroutine function")
    return listener


def _is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - a coroutine function in an object
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


# --- What an application counts, under Kafka Streams' and its consumers' names --------------------

_WINDOW_S = 30.0
_WINDOWS = 2
_MS_PER_S = 1000.0


class StreamsMetricsSnapshot(NamedTuple):
    """All metrics of an application's instance at one moment. Averages and maxima without values
    are NaN. A name that ends in ``-total`` counts since the application was made, over all its
    runs. Rates, averages and maxima are of the last minute."""

    state: AppState
    instance: Values
    """Of all tasks together."""
    tasks: dict[TaskId, Values]
    """By task that this instance has, in order."""


class StreamsMetrics:
    """Counts what an application's runs report. ``clock`` gives monotonic seconds; times are
    recorded in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        windows = Windows(_WINDOW_S, _WINDOWS)
        group = self._group = Group(windows)
        self._processed = group.meter("process")
        self._process_s = Windowed(windows)
        self._slowest = Windowed(windows)
        group.read_by("process-latency-avg", self._process_latency)
        group.read_by("process-latency-max", lambda now: self._slowest.maximum(now) * _MS_PER_S)
        self._dropped = group.meter("dropped-records")
        self._commits = group.meter("commit")
        self._commit_s = group.duration("commit-latency")
        self._failed_commits = group.meter("failed-commit")
        self._rebalance_s = group.rebalances()
        group.read_by("last-rebalance-seconds-ago", self._last_rebalance_ago)
        self._failed_rebalances = group.meter("failed-rebalance")
        self._read = {
            name: group.meter(name)
            for what in ("restore", "standby-update")
            for name in (f"{what}-records", f"{what}-bytes")
        }
        self._restored_tasks = group.meter("restored-tasks")
        self._suspended = group.meter("suspended-restores")
        self._rebalanced_at: float | None = None
        self._totals: defaultdict[TaskId, Counter[str]] = defaultdict(Counter)

    # --- what the runtime reports ---------------------------------------------------------------

    def processed(self, task: TaskId, records: int, seconds: float, slowest_s: float) -> None:
        """``records`` were processed, in ``seconds`` together. ``slowest_s``: the longest."""
        now = self._clock()
        self._processed.record(records, now)
        self._process_s.record(seconds, now)
        self._slowest.record(slowest_s, now)
        self._totals[task]["process-total"] += records

    def dropped(self, task: TaskId, records: int) -> None:
        """Records could not be processed, and were skipped or became dead letters."""
        self._dropped.record(records, self._clock())
        self._totals[task]["dropped-records-total"] += records

    def committed(self, seconds: float) -> None:
        now = self._clock()
        self._commits.record(1, now)
        self._commit_s.record(seconds, now)

    def commit_failed(self) -> None:
        """A commit failed; exactly once, its transaction was aborted."""
        self._failed_commits.record(1, self._clock())

    def rebalanced(self, seconds: float) -> None:
        """A rebalance took ``seconds``, from joining to the applied assignment."""
        self._rebalanced_at = self._clock()
        self._rebalance_s.record(seconds, self._rebalanced_at)

    def rebalance_failed(self) -> None:
        """The instance lost its membership."""
        self._failed_rebalances.record(1, self._clock())

    def changelog_read(
        self, task: TaskId, records: int, nbytes: int, *, is_restoring: bool
    ) -> None:
        """Changes were read: to restore an active task, or for a standby or warm-up."""
        now, name = self._clock(), "restore" if is_restoring else "standby-update"
        self._read[f"{name}-records"].record(records, now)
        self._read[f"{name}-bytes"].record(nbytes, now)
        self._totals[task][f"{name}-records-total"] += records

    def restore_over(self, *, is_complete: bool) -> None:
        """A task has all its state, and runs; or was taken away, or failed, before it had."""
        (self._restored_tasks if is_complete else self._suspended).record(1, self._clock())

    # --- reading --------------------------------------------------------------------------------

    def snapshot(
        self, state: AppState, tasks: Iterable[TaskDescription] = (), warmups: int = 0
    ) -> StreamsMetricsSnapshot:
        """The values of all metrics now. ``warmups``: copies that are to become active tasks."""
        now = self._clock()
        tasks = sorted(tasks)
        active = [task for task in tasks if task.state.is_active]
        standby = [task for task in tasks if not task.state.is_active]
        restoring = [task for task in active if task.state is not TaskState.RUNNING]
        values = self._group.snapshot(now) | {
            "active-tasks": len(active),
            "running-tasks": len(active) - len(restoring),
            "active-restoring-tasks": len(restoring),
            "standby-tasks": len(standby),
            "warmup-tasks": warmups,
            "restore-remaining-records": _sum(restoring),
            "standby-lag": _sum(standby),
            "standby-lag-max": max((t.lag or 0 for t in standby), default=0),
        }
        by_task: dict[TaskId, Values] = {}
        for task, task_state, _, lag in tasks:
            found: Values = {
                "dropped-records-total": 0,
                "process-total": 0,
                "restore-records-total": 0,
                "standby-update-records-total": 0,
                **self._totals.get(task, {}),
                "active": task_state.is_active,
                "running": task_state is TaskState.RUNNING,
            }
            if lag is not None:
                found["lag"] = lag
            by_task[task] = dict(sorted(found.items()))
        return StreamsMetricsSnapshot(state, dict(sorted(values.items())), by_task)

    def _process_latency(self, now: float) -> float:
        records = self._processed.rate(now)
        return self._process_s.rate(now) / records * _MS_PER_S if records else math.nan

    def _last_rebalance_ago(self, now: float) -> float:
        """-1 before the first rebalance, as in Java."""
        return -1.0 if self._rebalanced_at is None else now - self._rebalanced_at


def _sum(tasks: list[TaskDescription]) -> int:
    return sum(task.lag or 0 for task in tasks)
