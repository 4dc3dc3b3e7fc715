from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.spark.report.job import task_files
from kafkaclient.spark.report.queries import TelemetryRun, find_runs
from kafkaclient.telemetry import TelemetryFile

if TYPE_CHECKING:
    from pathlib import Path


HOUR = "date=2026-01-01/hour=05"


def make(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("content")
    return folder


def test_a_run_has_its_hours_and_the_period_chooses_some(tmp_path: Path) -> None:
    for hour in (5, 6, 7):
        make(
            tmp_path / "run" / "date=2026-01-01" / f"hour={hour:02}",
            *(f"batches-7-aa-{hour:06}.parquet", f"batches-4-bb-{hour:06}.parquet"),
        )
    (run,) = find_runs([str(tmp_path / "run")])
    assert (run.name, run.producers, len(run.files)) == ("run", 2, 6)
    six = datetime(2026, 1, 1, 6, 30, tzinfo=UTC)
    (run,) = find_runs([f"file://{tmp_path}"], since=six, until=six + timedelta(minutes=1))
    assert [(file.producer, file.number) for file in run.files] == [
        ("batches-4-bb", 6),
        ("batches-7-aa", 6),
    ]
    with pytest.raises(ConfigError, match=r"no telemetry from 2026-01-01 08:30:00\+00:00 in .*run"):
        find_runs([str(tmp_path / "run")], since=six + timedelta(hours=2))


def test_tasks_have_files_of_one_time_and_a_limited_number(tmp_path: Path) -> None:
    parts = [
        TelemetryFile(
            f"{hour}-{producer}",
            datetime(2026, 1, 1, hour, tzinfo=UTC),
            *(10 * 2**20, producer, hour),
        )
        for producer in ("a", "b")
        for hour in range(3)
    ]
    shares = task_files([TelemetryRun("r", "/r", tuple(parts), "/r")])
    assert [[path for _, _, path in share] for share in shares] == [
        ["0-a", "0-b"],
        ["1-a", "1-b"],
        ["2-a", "2-b"],
    ]
    at = datetime(2026, 1, 1, tzinfo=UTC)
    many = [TelemetryFile(f"{n:06}", at, 10 * 2**20, "a", n) for n in range(3000)]
    assert len(task_files([TelemetryRun("r", "/r", tuple(many), "/r")])) <= 256


def test_each_folder_below_is_a_run_and_keeps_the_order(tmp_path: Path) -> None:
    make(tmp_path / "z" / "facts" / HOUR, "batches-1-a-000000.parquet")
    make(tmp_path / "a" / "facts" / HOUR, "batches-1-b-000000.parquet")
    make(tmp_path / "a" / "other" / HOUR, "batches-1-c-000000.parquet")
    runs = find_runs([str(tmp_path / "z"), str(tmp_path / "a"), str(tmp_path / "a" / "other")])
    assert [run.name for run in runs] == ["z/facts", "a/facts", "a/other"]


def test_secrets_of_a_uri_are_not_shown(tmp_path: Path) -> None:
    make(tmp_path / "facts" / "before" / HOUR, "batches-1-a-000000.parquet")
    make(tmp_path / "facts" / "after" / HOUR, "batches-1-b-000000.parquet")
    make(tmp_path / "copy" / HOUR, "batches-1-a-000000.parquet")
    uri = f"file://{tmp_path}/facts?password=hunter2"
    runs = find_runs([uri, str(tmp_path / "facts" / "before")])
    assert [(run.name, run.folder) for run in runs[:2]] == [
        ("after", f"file://{tmp_path}/facts/after"),
        ("before", f"file://{tmp_path}/facts/before"),
    ]
    assert len(runs) == 2, "a folder that is given twice is one run"
    assert {run.root for run in runs} == {uri}
    for more, limit in (
        ([f"file://{tmp_path}/none?password=hunter2"], None),
        ([f"file://{tmp_path}/copy?password=hunter2"], None),
        ([], datetime(2026, 1, 1, tzinfo=UTC)),
    ):
        make(tmp_path / "hours" / "date=2025-01-01" / "hour=01")
        given = more or [f"file://{tmp_path}/hours?password=hunter2"]
        with pytest.raises(ConfigError) as refused:
            find_runs([*given, *([uri] if more else [])], since=limit)
        assert "hunter2" not in str(refused.value)


def test_a_folder_without_telemetry_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no batches-\*\.parquet in or below .*empty"):
        find_runs([str(make(tmp_path / "empty"))])


def test_copies_of_a_run_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make(tmp_path / name / HOUR, "batches-1-a-000000.parquet")
    with pytest.raises(ConfigError, match=r"in .*one and in .*two: copies"):
        find_runs([str(tmp_path / "one"), str(tmp_path / "two")])
