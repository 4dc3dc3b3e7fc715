"""When files are written, and that no error of writing is raised."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.telemetry import Recorder, read, started_at
from kafkaclient.telemetry.parquet import STARTED, write_part
from kafkaclient.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkaclient.telemetry import BatchRow

    Row = Callable[..., BatchRow]

FACTS = {STARTED: "2026-01-02T03:04:05.600000+00:00", "kafkaclient.linger.ms": "5"}


def recorder(directory: Path, client_id: str = "me", **options: Any) -> Recorder:
    return Recorder(directory, client_id, FACTS, **options)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@virtual_time
async def test_rows_are_read_back_in_order(tmp_path: Path, row: Row) -> None:
    target = tmp_path / "new" / "directory"
    recording = recorder(target, rows_per_file=40)
    for number in range(100):
        recording.add(row(partition=number, bound_s=None, topic=f"t{number % 7}"))
        await asyncio.sleep(0.001)
    await recording.close()
    table = read(target)
    assert table["partition"].to_pylist() == list(range(100))
    assert table["topic"].to_pylist() == [f"t{number % 7}" for number in range(100)]
    assert table["bound_s"].null_count == 100
    assert table.schema.metadata[b"kafkaclient.linger.ms"] == b"5"
    assert len(files(target)) == 3
    assert started_at(target / files(target)[0]).timestamp() == 1767323045.6


@virtual_time
async def test_a_file_is_written_some_seconds_after_its_first_row(tmp_path: Path, row: Row) -> None:
    recording = recorder(tmp_path, seconds_per_file=2.0)
    await asyncio.sleep(10)
    recording.add(row())
    await asyncio.sleep(1)
    recording.add(row())
    assert not files(tmp_path)
    await asyncio.sleep(1.1)
    assert read(tmp_path).num_rows == 2, "without the end: what a killed program leaves"
    recording.add(row())
    await asyncio.sleep(2.1)
    assert read(tmp_path).num_rows == 3
    await recording.close()
    assert len(files(tmp_path)) == 2


@virtual_time
async def test_without_rows_no_file_is_written(tmp_path: Path) -> None:
    target = tmp_path / "none"
    await recorder(target).close()
    assert not target.exists()
    with pytest.raises(FileNotFoundError, match=r"batches-\*\.parquet"):
        read(target)


@virtual_time
async def test_producers_share_a_directory(tmp_path: Path, row: Row) -> None:
    for client in ("a/b c", "a/b c", "ü"):
        recording = recorder(tmp_path, client)
        recording.add(row(client_id=client))
        await recording.close()
    assert sorted(read(tmp_path)["client_id"].to_pylist()) == ["a/b c", "a/b c", "ü"]
    assert all(name.startswith(("batches-a_b_c-", "batches-_-")) for name in files(tmp_path))


async def test_files_are_written_on_another_thread(tmp_path: Path, row: Row) -> None:
    threads = []

    def write(*args: Any) -> None:
        threads.append(threading.get_ident())
        write_part(*args)

    recording = recorder(tmp_path, rows_per_file=1, write=write)
    recording.add(row())
    await recording.close()
    assert threads
    assert threading.get_ident() not in threads


async def test_rows_added_during_a_write_are_in_the_next_file(tmp_path: Path, row: Row) -> None:
    go_on = threading.Event()

    def write(*args: Any) -> None:
        assert go_on.wait(10)
        write_part(*args)

    recording = recorder(tmp_path, rows_per_file=2, write=write)
    for number in range(7):
        recording.add(row(partition=number))
    assert not files(tmp_path)
    go_on.set()
    await recording.close()
    assert read(tmp_path)["partition"].to_pylist() == list(range(7))
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("after", [0, 1])
@virtual_time
async def test_an_error_is_logged_once_and_ends_the_recording(
    after: int, tmp_path: Path, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def write(*args: Any) -> None:
        calls.append(args)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_part(*args)

    recording = recorder(tmp_path, seconds_per_file=1.0, write=write)
    with caplog.at_level(logging.ERROR):
        for _ in range(10):
            recording.add(row())
            await asyncio.sleep(1.1)
        await recording.close()
    (message,) = (record.getMessage() for record in caplog.records)
    assert "No space left on device" in message
    assert str(tmp_path) in message
    assert recording.ended
    assert len(calls) == after + 1
    assert len(files(tmp_path)) == after


@virtual_time
async def test_a_removed_directory_ends_the_recording(
    tmp_path: Path, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "here"
    recording = recorder(target, rows_per_file=1)
    recording.add(row())
    await asyncio.sleep(0.001)
    target.rename(tmp_path / "elsewhere")
    recording.add(row())
    await asyncio.sleep(0.001)
    recording.add(row())
    await recording.close()
    assert len(caplog.records) == 1
    assert not target.exists()
    assert read(tmp_path / "elsewhere").num_rows == 1


@virtual_time
async def test_a_directory_that_cannot_be_created_ends_the_recording(
    tmp_path: Path, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    recording = recorder(tmp_path / "file" / "below")
    recording.add(row())
    await recording.close()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("count", [1, 100])
@virtual_time
async def test_rows_that_cannot_be_written_leave_no_partial_file(
    count: int, tmp_path: Path, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    recording = recorder(tmp_path)
    for _ in range(count):
        recording.add(row(records=2**31))
    await recording.close()
    assert recording.ended
    assert len(caplog.records) == 1
    assert not files(tmp_path)


async def test_memory_stays_bounded_if_the_disk_hangs(
    tmp_path: Path, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    recording = recorder(
        tmp_path, rows_per_file=10, most_waiting=100, write=lambda *_: go_on.wait(10)
    )
    for _ in range(300):
        recording.add(row())
    assert recording.ended
    assert "waiting=0" in repr(recording)
    assert "100 rows wait" in caplog.text
    go_on.set()
    await recording.close()


async def test_a_shut_down_executor_ends_the_recording(
    tmp_path: Path, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    recording = recorder(tmp_path, rows_per_file=2)
    await asyncio.get_running_loop().shutdown_default_executor()
    for _ in range(5):
        recording.add(row())
    assert recording.ended
    assert len(caplog.records) == 1
    await recording.close()


@virtual_time
async def test_rows_after_the_end_are_dropped(tmp_path: Path, row: Row) -> None:
    recording = recorder(tmp_path)
    recording.add(row())
    await recording.close()
    recording.add(row())
    await recording.close()
    await asyncio.sleep(10)
    assert read(tmp_path).num_rows == 1


def test_the_error_names_a_file_that_is_not_telemetry(tmp_path: Path) -> None:
    cut, other = tmp_path / "batches-cut.parquet", tmp_path / "batches-other.parquet"
    cut.write_bytes(b"PAR1 and no more")
    pq.write_table(pa.table({"topic": ["t"]}), other)
    for path in (cut, other):
        with pytest.raises(ConfigError, match=f"{path.name} is not a telemetry file"):
            started_at(path)
