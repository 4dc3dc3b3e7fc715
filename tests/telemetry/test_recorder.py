"""When files are written, and that errors of writing do not reach the producer."""

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
from kafkaclient.telemetry import recorder as recorder_module
from kafkaclient.telemetry.format import STARTED
from kafkaclient.telemetry.parquet import write_part
from kafkaclient.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkaclient.telemetry import BatchRow

    Row = Callable[..., BatchRow]
    Limit = Callable[..., None]

FACTS = {STARTED: "2026-01-02T03:04:05.600000+00:00", "kafkaclient.linger.ms": "5"}


def recorder(directory: Path, client_id: str = "me") -> Recorder:
    return Recorder(directory, client_id, FACTS)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``limit(ROWS_PER_FILE=40)`` sets a constant of the recorder, ``limit(write=f)`` its write."""

    def change(write: Callable[..., Any] = write_part, **limits: float) -> None:
        monkeypatch.setattr(recorder_module, "write_part", write)
        for name, value in limits.items():
            monkeypatch.setattr(recorder_module, f"_{name}", value)

    return change


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@virtual_time
async def test_rows_are_read_back_in_order(tmp_path: Path, row: Row, limit: Limit) -> None:
    target = tmp_path / "new" / "directory"
    limit(ROWS_PER_FILE=40)
    recording = recorder(target)
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
async def test_a_file_is_written_some_seconds_after_its_first_row(
    tmp_path: Path, row: Row, limit: Limit
) -> None:
    limit(SECONDS_PER_FILE=2.0)
    recording = recorder(tmp_path)
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
async def test_nothing_recorded_leaves_nothing(tmp_path: Path) -> None:
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


async def test_files_are_written_on_another_thread(tmp_path: Path, row: Row, limit: Limit) -> None:
    threads = []

    def write(*args: Any) -> None:
        threads.append(threading.get_ident())
        write_part(*args)

    limit(ROWS_PER_FILE=1, write=write)
    recording = recorder(tmp_path)
    recording.add(row())
    await recording.close()
    assert threads
    assert threading.get_ident() not in threads


async def test_rows_that_come_while_a_file_is_written_are_in_the_next(
    tmp_path: Path, row: Row, limit: Limit
) -> None:
    go_on = threading.Event()

    def write(*args: Any) -> None:
        assert go_on.wait(10)
        write_part(*args)

    limit(ROWS_PER_FILE=2, write=write)
    recording = recorder(tmp_path)
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
    after: int, tmp_path: Path, row: Row, limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def write(*args: Any) -> None:
        calls.append(args)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_part(*args)

    limit(SECONDS_PER_FILE=1.0, write=write)
    recording = recorder(tmp_path)
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
async def test_a_directory_that_is_taken_away_ends_the_recording(
    tmp_path: Path, row: Row, limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "here"
    limit(ROWS_PER_FILE=1)
    recording = recorder(target)
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
async def test_a_directory_that_cannot_be_made_ends_the_recording(
    tmp_path: Path, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    recording = recorder(tmp_path / "file" / "below")
    recording.add(row())
    await recording.close()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("count", [1, 100])
@virtual_time
async def test_rows_that_cannot_be_written_leave_no_half_file(
    count: int, tmp_path: Path, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    recording = recorder(tmp_path)
    for _ in range(count):
        recording.add(row(records=2**31))
    await recording.close()
    assert recording.ended
    assert len(caplog.records) == 1
    assert not files(tmp_path)


async def test_a_disk_that_does_not_answer_costs_bounded_memory(
    tmp_path: Path, row: Row, limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    limit(write=lambda *_: go_on.wait(10), ROWS_PER_FILE=10, MAX_WAITING=100)
    recording = recorder(tmp_path)
    for _ in range(300):
        recording.add(row())
    assert recording.ended
    assert "waiting=0" in repr(recording)
    assert "100 rows wait" in caplog.text
    go_on.set()
    await recording.close()


async def test_a_program_that_ends_without_a_stop(
    tmp_path: Path, row: Row, limit: Limit, caplog: pytest.LogCaptureFixture
) -> None:
    limit(ROWS_PER_FILE=2)
    recording = recorder(tmp_path)
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


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    cut, other = tmp_path / "batches-cut.parquet", tmp_path / "batches-other.parquet"
    cut.write_bytes(b"PAR1 and no more")
    pq.write_table(pa.table({"topic": ["t"]}), other)
    for path in (cut, other):
        with pytest.raises(ConfigError, match=f"{path.name} is not a file of telemetry"):
            started_at(path)
