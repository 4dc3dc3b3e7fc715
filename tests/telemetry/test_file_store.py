"""Files are complete or not there; retention deletes old telemetry and nothing else."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkaclient.config.options import TelemetryTarget
from kafkaclient.errors import ConfigError
from kafkaclient.telemetry import files, open_root, read, reading, started_at, stores
from kafkaclient.telemetry.format import (
    EXCLUSIONS_KEY,
    SCHEMA_VERSION,
    STARTED_KEY,
    VERSION_KEY,
    BatchColumns,
)
from kafkaclient.telemetry.reading import folder_of
from kafkaclient.telemetry.recorder import TelemetryPart
from tests.telemetry.support import batch

if TYPE_CHECKING:
    from pathlib import Path


FACTS = {
    STARTED_KEY: "2026-01-02T03:04:05.600000+00:00",
    "kafkaclient.linger.ms": "5",
    VERSION_KEY: str(SCHEMA_VERSION),
}
HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)


def part(number: int = 0, hour: datetime = HOUR, rows: int = 1) -> TelemetryPart:
    columns = BatchColumns("me", 100.0, acks=True)
    columns.append([batch(partition=number)] * rows)
    return TelemetryPart(f"batches-me-0123456789ab-{number:06d}", hour, columns, FACTS)


def store(root: Path | str, now: datetime = HOUR, retention_s: float | None = None) -> Any:
    return stores.FileStore(
        TelemetryTarget(str(root)),
        file_bytes=100_000,
        file_s=5.0,
        retention_s=retention_s,
        wall_clock=now.timestamp,
    )


def found(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("scheme", ["", "file://"])
async def test_files_stand_by_date_and_hour(scheme: str, tmp_path: Path) -> None:
    root = tmp_path / "new" / "folder"
    written = store(f"{scheme}{root}")
    await written.write(part(0))
    await written.write(part(1, HOUR + timedelta(hours=21)))
    await written.write(part(1, HOUR + timedelta(hours=21)))  # once more
    assert found(root) == [
        "date=2026-01-02/hour=03/batches-me-0123456789ab-000000.parquet",
        "date=2026-01-03/hour=00/batches-me-0123456789ab-000001.parquet",
    ]
    table = read(f"{scheme}{root}")
    assert table["partition"].to_pylist() == [0, 1]
    assert table.schema.metadata[b"kafkaclient.linger.ms"] == b"5"
    assert "hour" not in table.column_names


async def test_files_are_found_by_time(tmp_path: Path) -> None:
    written = store(tmp_path)
    for number in range(4):
        await written.write(part(number, HOUR + timedelta(hours=number)))
    for name in (
        "other.txt",
        "batches-x.parquet",
        "date=2026-01-02/hour=5/batches-x.parquet",
        "date=9/batches-x.parquet",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def numbers(*limits: datetime | None) -> list[int]:
        return [file.number for file in files(tmp_path, *limits)]

    assert numbers() == [0, 1, 2, 3]
    assert numbers(HOUR + timedelta(minutes=59)) == [0, 1, 2, 3]
    assert numbers(HOUR + timedelta(hours=1), HOUR + timedelta(hours=2)) == [1]
    assert numbers(None, HOUR + timedelta(hours=2, seconds=1)) == [0, 1, 2]
    assert numbers(HOUR + timedelta(days=9)) == []
    (file,) = files(tmp_path, HOUR, HOUR + timedelta(hours=1))
    opened, _ = open_root(tmp_path)
    assert started_at(file.path, opened).timestamp() == 1767323045.6
    with pytest.raises(ConfigError, match="has no time zone"):
        files(tmp_path, datetime(2026, 1, 1))  # noqa: DTZ001


async def test_the_size_of_rows_is_learned(tmp_path: Path) -> None:
    written = store(tmp_path)
    assert written.rows_per_part == 2000
    await written.write(part(rows=5000))
    assert written.rows_per_part > 20_000, "equal rows take next to nothing"


async def test_a_disk_that_is_full_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = store(tmp_path)

    class Full:
        type_name = "local"

        def __getattr__(self, name: str) -> Any:
            return getattr(opened, name)

        def move(self, *_: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    opened, root = written._opened
    written._opened = Full(), root
    with pytest.raises(OSError, match="No space"):
        await written.write(part())
    assert found(tmp_path) == []
    written._opened = opened, root
    await written.write(part())
    assert len(found(tmp_path)) == 1


async def test_a_folder_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    root = tmp_path / "here"
    written = store(root)
    await written.write(part())
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="is missing now"):
        await written.write(part(1))
    assert not root.exists()
    (tmp_path / "elsewhere").rename(root)
    await written.write(part(1))
    assert read(root).num_rows == 2


async def test_files_are_written_in_a_thread_that_a_program_does_not_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def seen(table: Any) -> bytes:
        threads.append(threading.current_thread())
        return b"content"

    monkeypatch.setattr(stores, "as_parquet", seen)
    await store(tmp_path).write(part())
    (thread,) = threads
    assert thread is not threading.main_thread()
    assert thread.daemon


async def test_a_write_waits_for_one_that_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the cancelled write goes on."""
    written, at_work, most = store(tmp_path), [0], [0]
    began, go = asyncio.Event(), threading.Event()
    loop, real = asyncio.get_running_loop(), stores.FileStore._write_file

    def write_file(*given: Any) -> None:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        loop.call_soon_threadsafe(began.set)
        go.wait(10)
        real(*given)
        at_work[0] -= 1

    monkeypatch.setattr(stores.FileStore, "_write_file", write_file)
    first = asyncio.create_task(written.write(part()))
    await began.wait()
    first.cancel()
    second = asyncio.create_task(written.write(part()))
    await asyncio.sleep(0)
    loop.call_soon(go.set)
    await second
    assert most == [1]
    assert found(tmp_path) == ["date=2026-01-02/hour=03/batches-me-0123456789ab-000000.parquet"]


async def test_retention_deletes_old_telemetry_and_nothing_else(tmp_path: Path) -> None:
    first = store(tmp_path)
    for number in range(30):  # two producers, 15 hours
        await first.write(part(number, HOUR + timedelta(hours=number // 2)))
    others = (
        "keep.parquet",
        "batches-me-0123456789ab-000000.parquet",
        "date=2026-01-02/batches-me-0123456789ab-000000.parquet",
        "date=2026-01-02/hour=03/mine.parquet",
        "date=2026-01-02/hour=03/batches-mine.parquet",
        "date=2026-01-02/hour=03/deeper/batches-me-0123456789ab-000000.parquet",
        "date=2026-01-02/hour=3/batches-me-0123456789ab-000000.parquet",
        "date=2026-1-2/hour=03/batches-me-0123456789ab-000000.parquet",
        "hour=03/batches-me-0123456789ab-000000.parquet",
    )
    for name in others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    left = tmp_path / "date=2026-01-02/hour=04/.batches-me-0123456789ab-000099.parquet.unfinished"
    left.touch()
    now = HOUR + timedelta(hours=12, minutes=30)
    later = store(tmp_path, now, retention_s=8 * 3600.0)
    await later.write(part(99, now.replace(minute=0)))
    await later.clean()
    kept = [file.hour for file in files(tmp_path) if file.number < 30 and file.size > 9]
    assert min(kept) == HOUR + timedelta(hours=4), "7:00 to 8:00 is older"
    assert len(kept) == 2 * 11
    assert all((tmp_path / name).exists() for name in others)
    assert not left.exists()
    assert not (tmp_path / "date=2026-01-02/hour=05").exists(), "it is empty"
    assert (tmp_path / "date=2026-01-02/hour=03").exists()


async def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    for name in ("hour=05", "."):
        (other / name).mkdir(parents=True, exist_ok=True)
        (other / name / "batches-a-0123456789ab-000000.parquet").write_text("not ours")
    (root / "date=2026-01-01").mkdir(parents=True)
    (root / "date=2026-01-01" / "hour=01").symlink_to(other)
    (root / "date=2025-12-31").symlink_to(other)
    before = found(other)
    now = HOUR + timedelta(days=2)
    later = store(root, now, retention_s=3600.0)
    await later.write(part(1, now))
    await later.clean()
    assert found(other) == before
    assert [file.number for file in files(root)] == [1]
    (tmp_path / "link").symlink_to(root)
    assert read(tmp_path / "link").num_rows == 1, "the folder itself may be a link"


async def test_producers_delete_at_the_same_time(tmp_path: Path) -> None:
    first = store(tmp_path)
    for number in range(200):
        await first.write(part(number, HOUR))
    now = HOUR + timedelta(days=2)
    both = [store(tmp_path, now, retention_s=3600.0) for _ in range(4)]
    for n, one in enumerate(both):
        await one.write(part(300 + n, now))
    for _ in range(200 // stores._DELETED_AT_ONCE + 1):
        await asyncio.gather(*(one.clean() for one in both))
    assert [file.number for file in files(tmp_path)] == [300, 301, 302, 303]


async def test_many_old_files_are_deleted_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_DELETED_AT_ONCE", 3)
    first = store(tmp_path)
    for number in range(5):
        await first.write(part(number, HOUR))
    later = store(tmp_path, HOUR + timedelta(days=2), retention_s=3600.0)
    left = []
    for _ in range(2):
        await later.write(part(300, HOUR + timedelta(days=2)))
        await later.clean()
        left.append(len(files(tmp_path)) - 1)
    assert left == [2, 0]


async def test_what_cannot_be_deleted_does_not_fail_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(stores, "hours", refuse)
    written = store(tmp_path, retention_s=3600.0)
    with caplog.at_level(logging.WARNING):
        for number in range(2):
            await written.write(part(number))
            await written.clean()
    assert len(files(tmp_path)) == 2
    (record,) = caplog.records
    assert "cannot be deleted" in record.getMessage()


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 10**14])
async def test_a_retention_of_ages_deletes_nothing(
    retention_ms: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = store(tmp_path, retention_s=retention_ms / 1000)
    await written.write(part(hour=datetime(1970, 1, 1, tzinfo=UTC)))
    await written.clean()
    assert len(files(tmp_path)) == 1
    assert not caplog.records


async def test_a_table_has_what_its_files_share(tmp_path: Path) -> None:
    written = store(tmp_path)
    excluded = {EXCLUSIONS_KEY: "[]"}
    later = "2026-01-02T04:00:00+00:00"
    first, second = part(0), part(1, HOUR + timedelta(hours=1))
    first.metadata = FACTS | excluded
    second.metadata = FACTS | excluded | {STARTED_KEY: later}
    await written.write(first)
    await written.write(second)
    table = read(tmp_path)
    assert table.schema.metadata == {
        b"kafkaclient.linger.ms": b"5",
        VERSION_KEY.encode(): str(SCHEMA_VERSION).encode(),
    }
    assert [at.isoformat() for at in table["started"].to_pylist()] == [FACTS[STARTED_KEY], later]


async def test_a_file_that_is_deleted_while_others_are_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = store(tmp_path)
    for number in range(2):
        await written.write(part(number))
    listed = files(tmp_path)
    (tmp_path / listed[0].path).unlink()
    monkeypatch.setattr(reading, "files_in", lambda *_: listed)
    assert read(tmp_path)["partition"].to_pylist() == [1]


def test_only_folders_of_the_period_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(1, 10):
        (tmp_path / f"date=2026-01-0{day}" / "hour=03").mkdir(parents=True)
    listed = []
    entries = reading.entries

    def seen(opened: Any, path: str) -> list[Any]:
        listed.append(path.removeprefix(str(tmp_path)))
        return entries(opened, path)

    monkeypatch.setattr(reading, "entries", seen)
    zone = timezone(timedelta(hours=-5))  # the evening before
    files(tmp_path, datetime(2026, 1, 3, 22, tzinfo=zone), datetime(2026, 1, 5, 3, tzinfo=UTC))
    assert sorted(set(listed) - {""}) == [
        "/date=2026-01-04",
        "/date=2026-01-04/hour=03",
        "/date=2026-01-05",
    ]


def test_secrets_of_a_uri_are_not_shown(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        read(f"file://{tmp_path}/none?password=hunter2")
    assert "hunter2" not in str(refused.value)


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"batches-\*\.parquet"):
        read(tmp_path / "none")


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    hour = tmp_path / folder_of(HOUR)
    hour.mkdir(parents=True)
    cut, other = hour / "batches-cut.parquet", hour / "batches-other.parquet"
    cut.write_bytes(b"PAR1 and no more")
    pq.write_table(pa.table({"topic": ["t"]}), other)
    for path in (cut, other):
        with pytest.raises(ConfigError, match=f"{path.name} is not"):
            started_at(path)
        with pytest.raises(ConfigError, match=f"{path.name} is not"):
            read(tmp_path)
        path.unlink()
    foreign = pa.table({"topic": ["t"]}, metadata=FACTS)
    pq.write_table(pa.table(foreign), other)
    with pytest.raises(ConfigError, match=r"batches-other\.parquet is not telemetry: it has no"):
        read(tmp_path)


def test_a_period_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    for until in (HOUR, HOUR - timedelta(hours=1)):
        with pytest.raises(ConfigError, match="exchange since and until"):
            files(tmp_path, HOUR, until)
