from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from kafkaclient.spark import jobs
from kafkaclient.spark.jobs import report_progress

if TYPE_CHECKING:
    from collections.abc import Mapping


class Tracker:
    """Stands for Spark's tracker. None is a stage that Spark has forgotten."""

    def __init__(self, stages: Mapping[int, tuple[int, int] | None]) -> None:
        self._stages = stages

    def getActiveStageIds(self) -> list[int]:
        return list(self._stages)

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:
        found = self._stages[stage]
        return found and SimpleNamespace(numCompletedTasks=found[0], numTasks=found[1])


def session(stages: Mapping[int, tuple[int, int] | None]) -> SimpleNamespace:
    return SimpleNamespace(_sc=SimpleNamespace(statusTracker=lambda: Tracker(stages)))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_POLL_INTERVAL_S", 0.001)


def test_the_tasks_of_active_stages_are_reported() -> None:
    reported: list[tuple[int, int]] = []
    enough = threading.Event()

    def report(done: int, tasks: int) -> None:
        reported.append((done, tasks))
        enough.set()

    with report_progress(session({3: (1, 8), 4: None, 5: (2, 4)}), report):
        assert enough.wait(10)
    assert set(reported) == {(3, 12)}
    assert "kafkaclient-spark-progress" not in {each.name for each in threading.enumerate()}


def test_spark_connect_reports_nothing() -> None:
    with report_progress(SimpleNamespace(), pytest.fail):
        assert "kafkaclient-spark-progress" not in {each.name for each in threading.enumerate()}


def test_the_reports_end_with_the_jvm() -> None:
    """Without a stack trace from the thread: the caller's job fails, too."""
    asked = threading.Event()

    class Ended(Tracker):
        def getActiveStageIds(self) -> list[int]:
            asked.set()
            raise ConnectionRefusedError

    spark = SimpleNamespace(_sc=SimpleNamespace(statusTracker=lambda: Ended({})))
    with report_progress(spark, pytest.fail):
        assert asked.wait(10)
