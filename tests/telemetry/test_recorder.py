"""When parts are written, and that a store that fails, hangs or is full does not end recording."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafkaclient.config.options import TelemetryTarget
from kafkaclient.telemetry import recorder as recorder_module
from kafkaclient.telemetry.format import EXCLUSIONS_KEY, STARTED_KEY, BatchColumns
from kafkaclient.telemetry.recorder import (
    PartRefusedError,
    PartTooLargeError,
    TelemetryPart,
    TelemetryRecorder,
)
from kafkaclient.testing.clock import virtual_time
from tests.telemetry.support import batch

START = 100.0
TARGET = TelemetryTarget("s3://key:secret-key@bucket/the store")
STARTED = datetime(2026, 1, 2, 3, 59, 50, tzinfo=UTC)


class MemoryStore:
    """Keeps parts. The next writes raise ``errors``; a write waits while ``go`` is not set."""

    def __init__(self, rows: int = 256, seconds: float = 5.0) -> None:
        self.rows_per_part, self.seconds_per_part = rows, seconds
        self.parts: list[TelemetryPart] = []
        self.attempts: list[float] = []
        self.errors: list[Exception] = []
        self.go = asyncio.Event()
        self.go.set()
        self.is_closed = False
        self.cleaned = 0
        self.most_rows = 10**9

    async def write(self, part: TelemetryPart) -> None:
        self.attempts.append(asyncio.get_running_loop().time())
        await self.go.wait()
        if self.errors:
            raise self.errors.pop(0)
        if part.columns.rows > self.most_rows:
            raise PartTooLargeError("too large")
        self.parts.append(part)

    async def clean(self) -> None:
        self.cleaned += 1

    async def close(self) -> None:
        self.is_closed = True

    def partitions(self) -> list[list[int]]:
        tables = (part.columns.table({}) for part in self.parts)
        return [table["partition"].to_pylist() for table in tables]


def recorder(store: MemoryStore, client_id: str = "me", **options: Any) -> TelemetryRecorder:
    given = {
        "clock": lambda: START,
        "wall_clock": STARTED.timestamp,
        "acks": True,
        "share": 1.0,
        "chance": lambda: 0.0,
    }
    return TelemetryRecorder(store, TARGET, client_id, lambda: {"k": "v"}, **given | options)


def started(rows: int = 256, seconds: float = 5.0) -> tuple[MemoryStore, TelemetryRecorder]:
    store = MemoryStore(rows, seconds)
    return store, recorder(store)


@virtual_time
async def test_a_full_part_is_written_at_once_and_the_rest_some_seconds_later() -> None:
    store, recording = started(rows=256, seconds=5.0)
    for number in range(300):
        recording.add(batch(partition=number))
    await asyncio.sleep(4.9)
    assert store.partitions() == [list(range(256))]
    await asyncio.sleep(0.2)
    assert store.partitions() == [list(range(256)), list(range(256, 300))]
    assert (recording.recorded, recording.dropped, recording.waiting) == (300, 0, 0)
    assert store.parts[0].metadata == {STARTED_KEY: STARTED.isoformat(), "k": "v"}
    await asyncio.sleep(100)
    assert len(store.attempts) == 2, "nothing is written while nothing is recorded"


@virtual_time
async def test_parts_have_names_of_their_own() -> None:
    store = MemoryStore(rows=256)
    for client in ("a/b c", "a/b c", "ü"):
        recording = recorder(store, client)
        for _ in range(300):
            recording.add(batch())
        await recording.close()
    names = [part.name for part in store.parts]
    assert len(set(names)) == 6
    starts = ["batches-a_b_c-"] * 4 + ["batches-_-"] * 2
    assert all(name.startswith(start) for name, start in zip(names, starts, strict=True))
    assert [name[-6:] for name in names] == ["000000", "000001"] * 3


@virtual_time
async def test_no_part_spans_two_hours() -> None:
    store, recording = started()
    for done_s in (101.0, 109.999, 110.0, 3709.9, 3710.0, 20000.0):
        recording.add(batch(done_s=done_s))
    await recording.close()
    hours = [(part.hour.isoformat(), part.columns.rows) for part in store.parts]
    assert hours == [
        ("2026-01-02T03:00:00+00:00", 2),
        ("2026-01-02T04:00:00+00:00", 2),
        ("2026-01-02T05:00:00+00:00", 1),
        ("2026-01-02T09:00:00+00:00", 1),
    ]


@virtual_time
async def test_a_wall_clock_that_is_set_moves_the_next_part_and_not_the_others() -> None:
    store = MemoryStore(rows=256)
    ahead_s = 0.0
    recording = recorder(store, wall_clock=lambda: STARTED.timestamp() + ahead_s)
    for _ in range(256):
        recording.add(batch(done_s=101.0))
    ahead_s = 7200.0  # for example, the machine was suspended
    recording.add(batch(done_s=102.0))
    ahead_s = 0.0
    await recording.close()
    moved = STARTED + timedelta(hours=2)
    assert [part.hour.hour for part in store.parts] == [3, 5]
    assert [part.metadata[STARTED_KEY] for part in store.parts] == [
        STARTED.isoformat(),
        moved.isoformat(),
    ]


@virtual_time
async def test_the_times_of_rows_and_of_their_metadata_start_together() -> None:
    store = MemoryStore()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    recording = recorder(
        store,
        clock=loop.time,
        wall_clock=lambda: STARTED.timestamp() + loop.time() - begun,
    )
    for _ in range(3):
        await asyncio.sleep(7)
        recording.add(batch(done_s=loop.time()))
    await recording.close()
    done = [part.columns.table({})["done_s"].to_pylist() for part in store.parts]
    assert done == [pytest.approx([each]) for each in (7.0, 14.0, 21.0)]
    for part in store.parts:
        started = datetime.fromisoformat(part.metadata[STARTED_KEY])
        assert abs(started - STARTED) < timedelta(milliseconds=1)


@virtual_time
async def test_a_sample_is_chosen_at_random() -> None:
    store = MemoryStore()
    chances = iter([0.0, 0.24, 0.25, 0.99, 0.1])
    recording = recorder(store, share=0.25, chance=lambda: next(chances))
    for number in range(5):
        recording.add(batch(partition=number))
    await recording.close()
    assert store.partitions() == [[0, 1, 4]]
    assert recording.dropped == 0


@virtual_time
async def test_an_outage_of_ten_minutes_ends_the_recording_for_that_time_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "_MAX_WAITING", 1024)
    store, recording = started(rows=256)
    store.errors = [OSError("no secret-key route")] * 24
    for number in range(6000):  # ten minutes, and a little longer
        recording.add(batch(partition=number))
        assert recording.waiting < 1024 + 256
        await asyncio.sleep(0.11)
    await recording.close()
    began, ended = (record.getMessage() for record in caplog.records)
    assert "is not written to s3://[hidden]@bucket/the store" in began
    assert "OSError: no [hidden] route" in began
    assert f"{recording.dropped} rows were lost" in ended
    assert recording.recorded + recording.dropped == 6000
    kept = [number for part in store.partitions() for number in part]
    assert len(kept) == recording.recorded
    assert kept[:256] == list(range(256)), "the oldest rows waited"
    assert kept[-256:] == list(range(6000 - 256, 6000))
    pauses = [b - a for a, b in zip(store.attempts, store.attempts[1:24], strict=False)]
    assert pauses[:5] == pytest.approx([1, 2, 5, 10, 30])
    assert set(map(round, pauses[5:])) == {30}


@virtual_time
async def test_one_failure_between_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    store, recording = started()
    store.errors = [OSError("slow down")]
    recording.add(batch())
    await asyncio.sleep(30)
    assert store.partitions() == [[0]]
    assert not caplog.records
    await recording.close()


@virtual_time
async def test_a_store_that_does_not_answer_costs_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "_MAX_WAITING", 1024)
    store = MemoryStore(rows=256)
    store.go.clear()
    recording = recorder(store)
    for _ in range(5000):
        recording.add(batch())
        assert recording.waiting < 1024 + 256
    await asyncio.sleep(60)
    assert len(caplog.records) == 1
    assert "rows wait for the store" in caplog.text
    store.go.set()
    await asyncio.sleep(10)
    assert recording.waiting == 0
    recording.add(batch(partition=9))
    await recording.close()
    assert store.partitions()[-1] == [9], "it goes on"
    assert recording.recorded + recording.dropped == 5001
    assert len(caplog.records) == 2


@virtual_time
async def test_what_can_never_be_written_does_not_block_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore(rows=256)
    store.errors = [PartRefusedError("the message is too large")]
    recording = recorder(store)
    for number in range(512):
        recording.add(batch(partition=number))
    for _ in range(600):
        recording.add(batch(records=2**31))  # no int32
    await recording.close()
    assert store.partitions() == [list(range(256, 512))]
    assert recording.dropped == 256 + 600
    messages = [record.getMessage() for record in caplog.records if record.levelno >= 40]
    assert len(messages) == 2, "once for each reason"
    assert "does not fit its columns" in messages[0] + messages[1]
    assert "2147483648" in messages[0] + messages[1], "Arrow's reason"
    assert "too large" in messages[0] + messages[1]


@virtual_time
async def test_a_part_that_is_too_large_is_halved(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore(rows=256)
    store.most_rows = 100
    recording = recorder(store)
    for number in range(300):
        recording.add(batch(partition=number))
    await recording.close()
    assert store.partitions() == [
        *(list(range(begin, begin + 64)) for begin in range(0, 256, 64)),
        list(range(256, 300)),
    ]
    assert [part.name[-10:] for part in store.parts[:4]] == [
        f"000000/{first}/{second}" for first in (1, 2) for second in (1, 2)
    ]
    assert (recording.recorded, recording.dropped, recording.waiting) == (300, 0, 0)
    assert not caplog.records


@virtual_time
async def test_a_store_that_is_too_small_for_a_row_costs_few_attempts_and_one_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore(rows=256)
    store.most_rows = 0
    recording = recorder(store)
    for _ in range(1024):
        recording.add(batch())
    await asyncio.sleep(10)
    assert len(store.attempts) == 4 * 9
    assert (recording.recorded, recording.dropped, recording.waiting) == (0, 1024, 0)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    store.most_rows = 256
    recording.add(batch(partition=7))
    await recording.close()
    assert store.partitions() == [[7]]


@virtual_time
async def test_a_part_that_is_refused_does_not_end_an_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    store.errors = [OSError("down"), OSError("down"), PartRefusedError("it is odd")]
    recording = recorder(store)
    recording.add(batch())
    await asyncio.sleep(20)
    assert "is not written to s3://[hidden]@bucket/the store" in caplog.text
    assert "again; " not in caplog.text
    recording.add(batch())
    await recording.close()
    assert "is written to s3://[hidden]@bucket/the store again; 1 rows were lost" in caplog.text


def test_halves_have_the_exclusions_once() -> None:
    columns = BatchColumns("me", START, acks=True)
    columns.append([batch(partition=number) for number in range(3)])
    part = TelemetryPart("batches-me-1", STARTED, columns, {EXCLUSIONS_KEY: "[]", "k": "v"})
    first, second = part.halves()
    assert (dict(first.metadata), dict(second.metadata)) == (part.metadata, {"k": "v"})
    assert (first.columns.rows, second.columns.rows, columns.rows) == (1, 2, 3)
    assert second.columns.table({})["partition"].to_pylist() == [1, 2]


@virtual_time
async def test_a_write_of_a_minute_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    store, recording = started()
    store.go.clear()
    recording.add(batch())
    await asyncio.sleep(64)
    assert not caplog.records
    await asyncio.sleep(2)
    assert "a write has taken 60 s so far" in caplog.text
    store.go.set()
    await recording.close()
    assert "is written to s3://[hidden]@bucket/the store again; 0 rows were lost" in caplog.text


@virtual_time
async def test_the_store_is_cleaned_after_writes_but_not_at_the_end() -> None:
    store, recording = started(rows=256)
    for _ in range(300):
        recording.add(batch())
    await asyncio.sleep(1)
    assert store.cleaned == 1
    await recording.close()
    assert (len(store.parts), store.cleaned) == (2, 1)


@virtual_time
async def test_a_close_that_is_cancelled_closes_the_store_and_counts_lost_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, recording = started()
    store.go.clear()
    recording.add(batch())
    closing = asyncio.create_task(recording.close())
    await asyncio.sleep(1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert store.is_closed
    assert recording.dropped == 1
    assert "stopped before they could be written" in caplog.text
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@pytest.mark.parametrize("fails", [True, False])
@virtual_time
async def test_a_close_waits_for_a_store_for_ten_seconds(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store, recording = started()
    if fails:
        store.errors = [OSError("gone")] * 100
    else:
        store.go.clear()
    recording.add(batch())
    await asyncio.sleep(60)
    begun = asyncio.get_running_loop().time()
    await recording.close()
    assert asyncio.get_running_loop().time() - begun == pytest.approx(0 if fails else 10)
    assert store.is_closed
    assert recording.dropped == 1
    assert caplog.records[-1].levelno == logging.ERROR
    assert "stopped before they could be written" in caplog.text
    recording.add(batch())
    await recording.close()
    assert (recording.dropped, recording.waiting) == (1, 0)


@pytest.mark.parametrize(("failures", "lost"), [(2, 0), (3, 1)])
@virtual_time
async def test_a_close_repeats_a_failed_write(failures: int, lost: int) -> None:
    store, recording = started()
    store.errors = [OSError("gone")] * failures
    recording.add(batch())
    begun = asyncio.get_running_loop().time()
    await recording.close()
    assert asyncio.get_running_loop().time() - begun == pytest.approx(3)
    assert (recording.recorded, recording.dropped) == (1 - lost, lost)


@virtual_time
async def test_a_cancelled_task_does_not_end_the_recording() -> None:
    store, recording = started()
    store.go.clear()
    recording.add(batch(partition=1))
    await asyncio.sleep(6)
    (writer,) = asyncio.all_tasks() - {asyncio.current_task()}
    writer.cancel()
    await asyncio.sleep(0)
    store.go.set()
    recording.add(batch(partition=2))
    await recording.close()
    assert store.partitions() == [[1], [2]]
