"""``kafkaclient report`` without Spark: what it refuses, and what it prints."""

from __future__ import annotations

import json
import signal
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from kafkaclient import pages
from kafkaclient.admin import Admin
from kafkaclient.cli import report as spark_module
from kafkaclient.cli.app import app
from kafkaclient.cli.connection import ConnectionOptions
from kafkaclient.spark.report import follow, job
from kafkaclient.spark.report.job import Tables
from kafkaclient.telemetry import SCHEMA, SCHEMA_VERSION, VERSION_KEY
from kafkaclient.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


class Spark:
    """Stands for a session; ``_sc`` None: one that tells no progress."""

    version = "4.2.0"
    _sc = None
    stopped = False

    def stop(self) -> None:
        self.stopped = True


def tables(batches: int) -> Tables:
    figures = dict.fromkeys(("avg_ms", "p50_ms", "p90_ms", "p95_ms", "p999_ms", "max_ms"), 2.0)
    totals = {"batches": batches, "records": 10, "bytes": 1024, "failed_records": 0}
    row = {"run": 0, "topic": None, "broker": None, "partition": None, "batches": batches}
    return Tables(
        totals=[{"run": 0, **totals, "retried_batches": 0, "seconds": 2.0}] if batches else [],
        errors=[],
        latency=[{**row, "part": "whole", **figures, "p99_ms": 12.5}],
        curves=[],
        skew=[],
        series=[],
        decisions=[],
        exclusions=[],
        savings=[],
    )


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    folder = tmp_path / "before"
    hour = folder / "date=2026-01-01" / "hour=05"
    hour.mkdir(parents=True)
    schema = SCHEMA.with_metadata(
        {"kafkaclient.started": "2026-01-01T00:00:00+00:00", VERSION_KEY: str(SCHEMA_VERSION)}
    )
    empty = pa.table([pa.array([], field.type) for field in schema], schema=schema)
    pq.write_table(empty, hour / "batches-a-1-000000.parquet")
    return folder


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    found = Spark()
    monkeypatch.setattr(spark_module, "spark_session", lambda *_, **__: found)
    monkeypatch.setattr(pages, "_plotly_js", lambda: "")
    return found


def run(monkeypatch: pytest.MonkeyPatch, batches: int, *words: str | Path) -> Any:
    windows: list[float] = []

    def aggregate(
        _spark: Any, runs: Any, _folder: Path, judgement: Any, _: Any, tell: Any
    ) -> Tables:
        windows.append(judgement.window_s)
        for step in job.STEPS:
            tell(step)
        return tables(batches)

    monkeypatch.setattr(job, "aggregate", aggregate)
    result = CliRunner().invoke(app, ["report", *map(str, words)])
    return result, windows


def test_tables_are_printed_and_files_written(
    monkeypatch: pytest.MonkeyPatch, spark: Spark, facts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result, windows = run(monkeypatch, 4, facts, "--out", out, "--window-ms", "50")
    assert result.exit_code == 0, result.stderr
    assert windows == [0.05]
    for text in ("before", "12.50", "records/s"):
        assert text in result.stdout
    assert {path.name for path in out.iterdir()} == {
        *("report.html", "summary.json", "latency.csv", "decisions.csv"),
    }
    assert spark.stopped


def test_brokers_in_the_environment_are_not_wrong_use(
    monkeypatch: pytest.MonkeyPatch, spark: Spark, facts: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKACLIENT_BOOTSTRAP", "b:9092")
    result, windows = run(monkeypatch, 4, facts, "--out", tmp_path / "out")
    assert (result.exit_code, windows) == (0, [0.1]), result.stderr


def test_json_goes_to_stdout_alone(
    monkeypatch: pytest.MonkeyPatch, spark: Spark, facts: Path, tmp_path: Path
) -> None:
    result, _ = run(monkeypatch, 4, facts, "--out", tmp_path / "out", "--json")
    assert json.loads(result.stdout)["runs"][0]["records_per_s"] == 5.0


def test_files_without_batches_are_an_error(
    monkeypatch: pytest.MonkeyPatch, spark: Spark, facts: Path, tmp_path: Path
) -> None:
    result, _ = run(monkeypatch, 0, facts, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "the files hold no batches" in result.stderr
    assert spark.stopped
    result, _ = run(
        monkeypatch, 0, facts, "--out", tmp_path / "out", "--since", "2026-01-01T00:00Z"
    )
    assert result.exit_code == 2
    assert "no batch had its outcome in the period from 2026-01-01" in result.stderr


def test_a_folder_without_telemetry_is_refused_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, _ = run(monkeypatch, 4, tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "give folders that producers wrote" in result.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "give folders with telemetry, or --follow TOPIC"),
        (("facts", "--since", "yesterday"), "--since yesterday is no time"),
        (("facts", "--since", "99999999999d"), "--since 99999999999d is no time"),
        (("facts", "--since", "-1h"), "give 90s, 15m, 1h or 7d (without a sign)"),
        (("facts", "--since", "9999999d"), "--since 9999999d is no time"),
        (("facts", "--since", "1h", "--until", "2h"), "--since 1h is not before --until 2h"),
        (("facts", "--follow", "t", "-b", "b:9092"), "give no DIR"),
        (
            ("--follow", "t", "-b", "b:9092", "--json"),
            "give no DIR, --until, --window-ms or --json",
        ),
        (("--follow", "t", "-b", "b:9092", "--window-ms", "5"), "--window-ms or"),
        (("facts", "-b", "b:9092"), "connects to no brokers"),
        (("facts", "--timeout", "5"), "connects to no brokers"),
        (("--follow", "t"), "no brokers to connect to"),
    ],
)
def test_wrong_words_are_refused_before_spark_is_started(
    tmp_path: Path, words: tuple[str, ...], error: str
) -> None:
    result = CliRunner().invoke(app, ["report", *words, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert error in " ".join(result.stderr.split())


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A cluster in memory, which the command connects to."""
    cluster = FakeCluster(1)

    @asynccontextmanager
    async def admin(_connection: Any) -> AsyncIterator[Admin]:
        async with Admin(cluster.bootstrap, dialer=cluster) as found:
            yield found

    monkeypatch.setattr(ConnectionOptions, "admin", admin)
    return cluster


def test_a_topic_that_is_missing_is_one_line(fake: FakeCluster, tmp_path: Path) -> None:
    words = ["report", "--follow", "none", "-b", "b:9092", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "topic 'none'" in result.stderr


@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_interrupts_no_call_of_spark(
    monkeypatch: pytest.MonkeyPatch,
    spark: Spark,
    fake: FakeCluster,
    tmp_path: Path,
    number: int,
    status: int,
    word: str,
) -> None:
    fake.create_topic("facts", 1)
    steps = []

    class Query:
        @property
        def isActive(self) -> bool:
            signal.raise_signal(number)
            steps.append("the call goes on")
            return True

    @contextmanager
    def following(*_: Any) -> Iterator[Query]:
        yield Query()
        steps.append("stopped")

    monkeypatch.setattr(follow, "following", following)
    words = ["report", "--follow", "facts", "-b", "b:9092", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == status
    assert steps == ["the call goes on", "stopped"]
    assert spark.stopped
    assert word in result.stderr


def test_a_folder_that_cannot_be_created_is_named(
    monkeypatch: pytest.MonkeyPatch, facts: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result, _ = run(monkeypatch, 4, facts, "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert "the folder --out" in result.stderr
    assert "Not a directory" in " ".join(result.stderr.split())


def test_a_period_without_telemetry_is_refused(facts: Path, tmp_path: Path) -> None:
    words = ["report", str(facts), "--out", str(tmp_path / "out"), "--since", "2026-01-01T06:00Z"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "no telemetry from 2026-01-01 06:00" in " ".join(result.stderr.split())
