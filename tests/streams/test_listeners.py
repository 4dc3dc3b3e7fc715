"""Listeners of an application, and the observer that tells them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.streams.metrics import (
    AppState,
    RestoreListener,
    checked_restore_listener,
    checked_state_listener,
)
from kafkaclient.streams.runtime.observer import Observer
from kafkaclient.streams.tasks import TaskEvent, TaskId, TaskState
from kafkaclient.types import TopicPartition
from tests.streams.fakes import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

T0, T1 = TaskId(0, 0), TaskId(0, 1)
LOG = TopicPartition("app-s-changelog", 0)


class Told(RestoreListener):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_restore_start(self, *told: Any) -> None:
        self.calls.append(("start", *told))

    def on_batch_restored(self, *told: Any) -> None:
        self.calls.append(("batch", *told))

    def on_restore_end(self, *told: Any) -> None:
        self.calls.append(("end", *told))

    def on_restore_suspended(self, *told: Any) -> None:
        self.calls.append(("suspended", *told))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def states() -> list[str]:
    return []


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def observer(clock: Clock, states: list[str], told: Told) -> Observer:
    def listener(new: AppState, old: AppState) -> None:
        states.append(f"{old.value} > {new.value}")

    return Observer(clock, state_listener=listener, restore_listener=told)


def active(observer: Observer, task: TaskId) -> None:
    observer.task_changed(task, TaskState.CREATED, TaskEvent.ASSIGNED_ACTIVE, TaskState.RESTORING)


def restored(observer: Observer, task: TaskId) -> None:
    observer.task_changed(task, TaskState.RESTORING, TaskEvent.RESTORED, TaskState.RUNNING)


def test_the_states_of_a_run(observer: Observer, states: list[str]) -> None:
    observer.run_started()
    observer.joining()
    active(observer, T0)
    observer.assigned([T0, T1])
    active(observer, T1)  # its store was opened later
    restored(observer, T0)
    assert states == ["created > rebalancing"]
    restored(observer, T1)
    observer.joining()  # a rebalance that changes nothing
    observer.joining()
    observer.assigned([T0, T1])
    observer.run_ending()
    observer.task_changed(T0, TaskState.RUNNING, TaskEvent.REVOKED, TaskState.CLOSED)
    observer.run_ended(None)
    assert states[1:] == [
        "rebalancing > running",
        "running > rebalancing",
        "rebalancing > running",
        "running > pending shutdown",
        "pending shutdown > not running",
    ]


def test_an_instance_without_tasks_runs(observer: Observer) -> None:
    observer.run_started()
    assert observer.state is AppState.REBALANCING
    observer.task_changed(T0, TaskState.CREATED, TaskEvent.ASSIGNED_STANDBY, TaskState.STANDBY)
    observer.joining()
    observer.assigned([])
    assert observer.state is AppState.RUNNING
    observer.lost()
    assert observer.state is AppState.REBALANCING


def test_an_error_and_a_second_run(observer: Observer, states: list[str]) -> None:
    observer.run_started()
    active(observer, T0)
    observer.run_ending()
    observer.run_ended(RuntimeError())
    assert states[-1] == "pending shutdown > error"
    observer.run_started()
    observer.joining()
    observer.assigned([])
    assert states[-2:] == ["error > rebalancing", "rebalancing > running"]


def test_a_restoration(observer: Observer, told: Told) -> None:
    observer.run_started()
    active(observer, T0)
    observer.restore_started(T0, "s", LOG, 10, 50)
    observer.changelog_read(T0, LOG, 40, 30, 300)
    observer.changelog_read(T0, LOG, 40, 0, 0)
    observer.changelog_read(T0, LOG, 50, 10, 100)
    restored(observer, T0)
    observer.changelog_read(T0, LOG, 60, 1, 1)  # of a standby by now
    assert told.calls == [
        ("start", LOG, "s", 10, 50),
        ("batch", LOG, "s", 40, 30),
        ("batch", LOG, "s", 50, 10),
        ("end", LOG, "s", 40),
    ]
    values = observer.metrics.snapshot(observer.state).instance
    assert (values["restore-records-total"], values["restore-bytes-total"]) == (40, 400)
    assert values["standby-update-records-total"] == 1
    assert values["restored-tasks-total"] == 1


@pytest.mark.parametrize(
    ("event", "after"),
    [
        (TaskEvent.REVOKED, TaskState.CLOSED),
        (TaskEvent.ASSIGNED_STANDBY, TaskState.STANDBY),
        (TaskEvent.FAILED, TaskState.RESTORING),
    ],
)
def test_a_restoration_that_stops(
    observer: Observer, told: Told, event: TaskEvent, after: TaskState
) -> None:
    observer.run_started()
    active(observer, T0)
    observer.restore_started(T0, "s", LOG, 0, 50)
    observer.changelog_read(T0, LOG, 20, 20, 20)
    observer.task_changed(T0, TaskState.RESTORING, event, after)
    assert told.calls[2:] == [("suspended", LOG, "s", 20)]
    values = observer.metrics.snapshot(observer.state).instance
    assert values["suspended-restores-total"] == 1


def test_a_listener_that_raises_harms_nothing(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(*_: object) -> None:
        raise ValueError("no")

    listener = RestoreListener()
    listener.on_restore_start = raises  # type: ignore[method-assign]
    observer = Observer(clock, state_listener=raises, restore_listener=listener)
    observer.run_started()
    observer.restore_started(T0, "s", LOG, 0, 1)
    assert observer.state is AppState.REBALANCING
    assert caplog.text.count("ValueError: no") == 2


async def _coroutine(new: AppState, old: AppState) -> None:
    """No listener."""


class _Async(RestoreListener):
    async def on_restore_end(self, *told: Any) -> None:  # type: ignore[override]
        """No listener."""


class _AsyncCall:
    async def __call__(self, new: AppState, old: AppState) -> None:
        """No listener."""


@pytest.mark.parametrize(
    ("check", "listener"),
    [
        *(
            (checked_state_listener, wrong)
            for wrong in (5, "f", _coroutine, _AsyncCall(), _AsyncCall)
        ),
        (checked_state_listener, lambda: None),
        (checked_state_listener, lambda new: None),
        (checked_restore_listener, 5),
        (checked_restore_listener, Told),
        (checked_restore_listener, lambda *_: None),
        (checked_restore_listener, _Async()),
    ],
)
def test_what_is_no_listener(check: Callable[[Any], object], listener: Any) -> None:
    with pytest.raises(ConfigError, match="_listener"):
        check(listener)


def test_what_is_a_listener(told: Told) -> None:
    for listener in (print, lambda new, old: None, functools.partial(max, 1)):
        assert checked_state_listener(listener) is listener
    assert checked_restore_listener(told) is told
    assert checked_state_listener(None) is checked_restore_listener(None) is None
