"""``perf-test --spark-master`` without Spark: its tasks run here, one after the other."""

from __future__ import annotations

import json
import pickle
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from kafkaclient.cli import perf_report as perf_producers
from kafkaclient.cli import report as spark_module
from kafkaclient.perf import run, spark_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from click.testing import Result

    PerfTest = Callable[..., Result]

FLEET = ("--record-size", "10", "--spark-master", "local[2]", "--producers", "2")


class Tracker:
    def getActiveStageIds(self) -> list[int]:
        return []

    def getStageInfo(self, _stage: int) -> None:
        return None


class Spark:
    """Stands for a session, its context, and an RDD with barriers."""

    stopped = False

    def __init__(self) -> None:
        self._sc = self.sparkContext = self

    def statusTracker(self) -> Tracker:
        return Tracker()

    def parallelize(self, plans: list[Any], _slices: int) -> Spark:
        self._plans = pickle.loads(pickle.dumps(plans))  # noqa: S301 - our own
        return self

    def barrier(self) -> Spark:
        return self

    def mapPartitions(self, work: Callable[[Any], Iterator[Any]]) -> Spark:
        self._work = work
        return self

    def collect(self) -> list[Any]:
        return [each for plan in self._plans for each in self._work(iter([plan]))]

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch, instant: Any) -> Spark:
    barrier = type("B", (), {"get": type("C", (), {"barrier": lambda _self: None})})
    module = type("pyspark", (), {"BarrierTaskContext": barrier})
    monkeypatch.setattr(spark_load, "import_module", lambda _name: module)
    monkeypatch.setattr(run, "loop_factory", lambda: None)
    session = Spark()
    monkeypatch.setattr(spark_module, "spark_session", lambda *_, **__: session)
    return session


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The topics that were followed, and by which brokers; 40 records come into each."""
    found = []

    @contextmanager
    def follow(
        config: Mapping[str, str], topic: str, tell: Callable[[int], None]
    ) -> Iterator[None]:
        found.append((config["bootstrap.servers"], topic))
        tell(40)
        yield

    monkeypatch.setattr(perf_producers, "growth_followed", follow)
    return found


def test_many_producers_make_one_line_and_a_record_each(
    perf_test: PerfTest, spark: Spark, followed: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    result = perf_test(*FLEET, "--repeat", "2", "--json", str(path))
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.partition(",")[0] for line in lines] == 2 * ["100 records sent"]
    record = json.loads(path.read_text())
    assert [each["records"] for each in record["producers"]] == [50, 50]
    assert spark.stopped
    assert followed == [], "nobody looks: standard error is no terminal"


def test_a_terminal_is_told_what_arrives(
    perf_test: PerfTest, spark: Spark, followed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=160)
    monkeypatch.setattr(spark_module, "stderr_console", lambda: console)
    result = perf_test(*FLEET)
    assert result.exit_code == 0
    assert "40 of 100 arrived, " in screen.getvalue()
    assert len(followed) == 1
