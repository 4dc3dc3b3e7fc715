from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.spark.report.runs import find_runs

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2026, 1, 1, tzinfo=UTC)


def make(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def started(path: Path) -> datetime:
    """A producer named after a number was started this many seconds after START."""
    return START + timedelta(seconds=int(path.name.split("-")[1]))


def test_producers_times_go_onto_one_axis(tmp_path: Path) -> None:
    make(
        tmp_path / "run",
        *("batches-7-aa-000000.parquet", "batches-7-aa-000001.parquet"),
        *("batches-4-bb-000000.parquet", ".batches-4-bb-000001.parquet.unfinished"),
    )
    opened: list[str] = []

    def open_file(path: Path) -> datetime:
        opened.append(path.name)
        return started(path)

    (run,) = find_runs([tmp_path / "run"], open_file)
    assert (run.name, run.producers) == ("run", 2)
    assert {part.file: part.offset_s for part in run.parts} == {
        "batches-7-aa-000000.parquet": 3.0,
        "batches-7-aa-000001.parquet": 3.0,
        "batches-4-bb-000000.parquet": 0.0,
    }
    assert [part.number for part in run.parts] == [0, 0, 1]
    assert len(opened) == 2, "one file of each producer is opened"


def test_each_folder_below_is_a_run_and_keeps_the_order(tmp_path: Path) -> None:
    make(tmp_path / "z" / "facts", "batches-1-a-000000.parquet")
    make(tmp_path / "a" / "facts", "batches-1-b-000000.parquet")
    make(tmp_path / "a" / "other", "batches-1-c-000000.parquet")
    runs = find_runs([tmp_path / "z", tmp_path / "a", tmp_path / "a" / "other"], started)
    assert [run.name for run in runs] == ["z/facts", "a/facts", "a/other"]


def test_a_folder_without_telemetry_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no batches-\*\.parquet in or below .*empty"):
        find_runs([make(tmp_path / "empty")], started)


def test_copies_of_a_run_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make(tmp_path / name, "batches-1-a-000000.parquet")
    with pytest.raises(ConfigError, match=r"in .*one and in .*two: copies"):
        find_runs([tmp_path / "one", tmp_path / "two"], started)
