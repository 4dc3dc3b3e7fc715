"""Spark's jobs: their errors, their progress, and garbage collection in workers."""

from __future__ import annotations

import gc
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError

from kafkaclient.errors import ConfigError
from kafkaclient.spark import jobs
from kafkaclient.spark.jobs import SparkJobError, report_progress, spark_failures

if TYPE_CHECKING:
    from collections.abc import Mapping

SAID = """An error occurred while calling o30.parquet.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.jobAbortedError(Errors.scala:496)
\t... 42 more
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


IN_A_WORKER = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "counting.py", line 90, in read_batches
    with pq.ParquetFile(path) as file:
         ^^^^^^^^^^^^^^^^^^^^
kafkaclient.spark.jobs.SparkJobError: /facts/batches-a.parquet cannot be read
"""


def test_a_python_workers_error_has_no_frames() -> None:
    with pytest.raises(SparkJobError) as raised, spark_failures("the report"):
        raise Py4JError(IN_A_WORKER)
    assert str(raised.value) == (
        "the report: An exception was thrown from the Python worker. Please see the stack trace "
        "below. kafkaclient.spark.jobs.SparkJobError: /facts/batches-a.parquet cannot be read"
    )


def test_the_message_has_the_first_lines_of_spark() -> None:
    with pytest.raises(SparkJobError) as raised, spark_failures("the report"):
        raise Py4JError(SAID)
    message = str(raised.value)
    assert message.startswith("the report: An error occurred while calling")
    assert "No space left on device" in message
    assert "Errors.scala" not in message
    assert isinstance(raised.value.__cause__, Py4JError)


@pytest.mark.parametrize("error", [ConfigError("wrong"), OSError("gone"), ValueError("defect")])
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, spark_failures("the report"):
        raise error
    assert raised.value is error


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


def test_imports_are_frozen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_modules", 0)
    gc.unfreeze()
    jobs.freeze_objects()
    assert gc.get_freeze_count() > 1000
    made_later: list[object] = []

    def is_frozen() -> bool:
        return not any(each is made_later for each in gc.get_objects())

    jobs.freeze_objects()
    assert not is_frozen()  # what a task makes can become garbage
    monkeypatch.setitem(sys.modules, "imported_later", ModuleType("imported_later"))
    jobs.freeze_objects()
    assert is_frozen()
