"""An application's metrics, with a clock of the test."""

from __future__ import annotations

import math

import pytest

from kafkaclient.streams.metrics import AppState, StreamsMetrics
from kafkaclient.streams.tasks import TaskDescription, TaskId, TaskState
from tests.streams.fakes import Clock

T0, T1, T2 = (TaskId(0, number) for number in range(3))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> StreamsMetrics:
    return StreamsMetrics(clock)


def test_names_and_values_of_a_new_application(metrics: StreamsMetrics) -> None:
    found = metrics.snapshot(AppState.CREATED)
    assert found.state is AppState.CREATED
    assert found.tasks == {}
    assert list(found.instance) == sorted(found.instance)
    assert found.instance["last-rebalance-seconds-ago"] == -1
    totals = {name: value for name, value in found.instance.items() if name.endswith("-total")}
    assert set(totals.values()) == {0}
    assert {"process-total", "commit-total", "rebalance-total", "restore-records-total"} <= set(
        totals
    )
    assert math.isnan(found.instance["process-latency-avg"])


def test_processing(metrics: StreamsMetrics, clock: Clock) -> None:
    metrics.processed(T0, 90, 0.09, 0.002)
    metrics.processed(T1, 10, 0.21, 0.1)
    metrics.dropped(T1, 1)
    metrics.committed(0.02)
    metrics.committed(0.04)
    metrics.commit_failed()
    tasks = [TaskDescription(task, TaskState.RUNNING, 0, None) for task in (T0, T1)]
    found = metrics.snapshot(AppState.RUNNING, tasks)
    values = found.instance
    assert values["process-total"] == 100
    assert values["process-latency-avg"] == pytest.approx(3.0)  # ms per record
    assert values["process-latency-max"] == pytest.approx(100.0)
    assert values["dropped-records-total"] == 1
    assert (values["commit-total"], values["failed-commit-total"]) == (2, 1)
    assert values["commit-latency-avg"] == pytest.approx(30)
    assert values["commit-latency-max"] == pytest.approx(40)
    assert found.tasks[T1]["process-total"] == 10
    assert found.tasks[T1]["dropped-records-total"] == 1
    assert "lag" not in found.tasks[T1]
    clock.now += 3600
    later = metrics.snapshot(AppState.RUNNING, tasks).instance
    assert later["process-total"] == 100
    assert later["process-rate"] == 0
    assert math.isnan(later["process-latency-avg"])


def test_rebalances(metrics: StreamsMetrics, clock: Clock) -> None:
    metrics.rebalanced(0.5)
    clock.now += 10
    metrics.rebalanced(1.5)
    clock.now += 5
    metrics.rebalance_failed()
    values = metrics.snapshot(AppState.RUNNING).instance
    assert values["rebalance-total"] == 2
    assert values["rebalance-latency-avg"] == pytest.approx(1000)
    assert values["rebalance-latency-max"] == pytest.approx(1500)
    assert values["rebalance-latency-total"] == pytest.approx(2000)
    assert values["last-rebalance-seconds-ago"] == 5
    assert values["failed-rebalance-total"] == 1
    assert values["rebalance-rate-per-hour"] == pytest.approx(2 * 3600 / 45, rel=0.5)


def test_copies(metrics: StreamsMetrics) -> None:
    tasks = [
        TaskDescription(T2, TaskState.STANDBY, 0, 30),
        TaskDescription(T1, TaskState.STANDBY, 0, 50),
        TaskDescription(T0, TaskState.RESTORING, 0, 7),
        TaskDescription(TaskId(1, 0), TaskState.RUNNING, 0, None),
    ]
    found = metrics.snapshot(AppState.REBALANCING, tasks, 1)
    values = found.instance
    assert list(found.tasks) == [T0, T1, T2, TaskId(1, 0)]
    assert values["active-tasks"] == 2
    assert values["running-tasks"] == 1
    assert values["active-restoring-tasks"] == 1
    assert (values["standby-tasks"], values["warmup-tasks"]) == (2, 1)
    assert values["restore-remaining-records"] == 7
    assert (values["standby-lag"], values["standby-lag-max"]) == (80, 50)
    assert found.tasks[T2]["lag"] == 30
    assert found.tasks[T0]["active"] == 1
    assert found.tasks[T0]["running"] == 0
