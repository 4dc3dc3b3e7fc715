"""The windows of ``report --follow``, against the same batches counted one by one."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from math import inf, nan
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.spark.report import choices, follow, live
from kafkaclient.spark.report.follow import WindowTable, alone, write_view
from kafkaclient.spark.report.live import WINDOWS, LiveWindows, count_messages
from kafkaclient.telemetry import SCHEMA, SCHEMA_VERSION, VERSION_KEY
from kafkaclient.telemetry.format import as_message

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]

MINUTE = 60_000
STARTED = 1_800_000_000


def batch(at_s: float, broker: int = 0, **given: Any) -> Row:
    times = {"created_s": at_s - 0.010, "bound_s": at_s - 0.008, "sent_s": at_s - 0.004}
    return {
        **{field.name: 0 for field in SCHEMA},
        **{"client_id": "c", "topic": "t", "partition": broker, "broker": broker},
        **{
            "records": 10,
            "bytes": 1000,
            "attempts": 1,
            **times,
            "acknowledged_s": at_s,
            "done_s": at_s,
        },
        **{"bound_by": "late", "error": None, **given},
    }


def message(*rows: Row, **metadata: str) -> bytes:
    started = datetime.fromtimestamp(STARTED, UTC).isoformat()
    known = {"kafkaclient.started": started, VERSION_KEY: str(SCHEMA_VERSION)}
    schema = SCHEMA.with_metadata(known | metadata)
    return as_message(pa.Table.from_pylist(list(rows), schema))


def windows(*messages: bytes) -> LiveWindows:
    found = LiveWindows(5.0, lambda: STARTED + 1000.0)
    found.add(count_messages(messages, 5.0))
    return found


def test_shares_skew_percentiles_and_failures() -> None:
    slow = [batch(1.0, 0, created_s=0.9, partition=3) for _ in range(20)]
    fast = [batch(2.0, 1, bound_by="append") for _ in range(60)]
    failed = batch(3.0, 1, acknowledged_s=None, error="BrokerError")
    view = windows(message(*slow, *fast), message(failed)).view()
    assert view["all"]["batches"] == 81
    assert view["all"]["skew"] == pytest.approx(61 * 2 / 81)
    assert view["all"]["p50_ms"] == pytest.approx(10, rel=0.03)
    assert view["all"]["p99_ms"] == pytest.approx(100, rel=0.03)
    slowest, fastest = sorted(view["brokers"], key=lambda row: row["broker"])
    assert (slowest["batches"], slowest["failed"]) == (20, 0)
    assert (fastest["batches"], fastest["failed"], fastest["append"]) == (61, 1, 60)
    assert slowest["share"] == pytest.approx(20 / 81)
    assert {row["partition"]: row["p50_ms"] for row in view["partitions"]} == {
        3: pytest.approx(100, rel=0.03),
        1: pytest.approx(10, rel=0.03),
    }
    assert view["newest_outcome_s"] == STARTED + 3.0


def test_what_was_saved_is_shown() -> None:
    rng = Random(3)
    rows = []
    for second in range(30):
        for broker, count, took_s in ((0, 2, 0.05), (1, 10, 0.005)):
            for _ in range(count):
                sent = second + rng.random()
                rows.append(batch(sent + took_s, broker, sent_s=sent, bound_s=sent, created_s=sent))
    saving = windows(message(*rows)).view()["saving"]
    truth_ms = (50 + 5) / 2 - (2 * 50 + 10 * 5) / 12
    assert saving["saved_ms"] == pytest.approx(truth_ms, rel=0.05)
    assert saving["low_ms"] <= saving["saved_ms"] <= saving["high_ms"]


def test_open_and_closed_windows_are_judged_together() -> None:
    """Broker 1 is excluded for a minute. Windows and topics share blocks of ten seconds."""
    found, seconds, rows = windows(), [], list[Row]()
    for second in range(2, 200):
        for topic in ("t", "u"):
            brokers = (0,) if 30 <= second < 90 else (0, 1)
            took_s = {0: 0.01, 1: 0.02 + second / 1e4}
            sent = {"bound_s": second + 0.5, "sent_s": second + 0.5}
            rows += [batch(second + 0.5 + took_s[b], b, topic=topic, **sent) for b in brokers]
            seconds += [(second + STARTED, b, 1.0, took_s[b]) for b in brokers if topic == "t"]
        if second % 5 == 4:
            found.add(count_messages([message(*rows)], 5.0))
            found.close()
            rows.clear()
    names = ("second", "broker", "chosen", "chosen_s")
    table = pa.table(dict(zip(names, zip(*seconds, strict=True), strict=True)))
    one = choices.blocks(0, table, {0: 1, 1: 1})
    columns = [one[name] for name in ("run", "block")]
    sums = [pa.array(2 * one[name].to_numpy()) for name in choices.BLOCKS.names[2:]]
    expected = choices.saving(pa.table([*columns, *sums], choices.BLOCKS.names))
    assert expected is not None
    assert found.view()["saving"] == pytest.approx(asdict(expected), rel=1e-6)
    assert expected.assumed > 0.1


@pytest.fixture
def few_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SHOWN", 20)
    monkeypatch.setattr(live, "RECENT", 3)


@pytest.mark.usefixtures("few_windows")
def test_choices_of_old_windows_are_forgotten() -> None:
    def saving(*seconds: int) -> Any:
        found = windows()
        for second in seconds:
            rows = (batch(second + took, b) for b, took in ((0, 0.01), (1, 0.3)))
            found.add(count_messages([message(*rows)], 5.0))
            found.close()
        return found.view()["saving"]

    assert saving(1, *range(110, 130)) == saving(*range(110, 130))


def test_exclusions_are_added_up_by_reason() -> None:
    excluded = json.dumps([{"broker": 1, "reason": "slow", "times": 3}])
    given = {"kafkaclient.exclusions": excluded}
    view = windows(message(batch(1.0), **given), message(batch(1.5), **given)).view()
    (row,) = view["exclusions"]
    assert (row["broker"], row["reason"], row["batches"]) == (1, "slow", 6)


def test_each_window_is_closed_once() -> None:
    found = windows(message(batch(6.0), batch(11.0)))
    assert found.close() == [], "late batches may come"
    found.add(count_messages([message(batch(7.0), batch(32.0))], 5.0))
    closed = [row for row in found.close() if row["kind"] == "all"]
    assert [(row["window_start"] // 1000 - STARTED, row["batches"]) for row in closed] == [(5, 2)]
    found.add(count_messages([message(batch(40.0))], 5.0))
    closed = [row for row in found.close() if row["kind"] == "all"]
    assert [row["window_start"] // 1000 - STARTED for row in closed] == [10]
    found.add(count_messages([message(batch(3.0))], 5.0))
    assert (found.close(), found.late) == ([], 1)
    assert pa.Table.from_pylist(closed, WINDOWS)["batches"].to_pylist() == [1]


@pytest.mark.usefixtures("few_windows")
def test_memory_does_not_grow_with_time() -> None:
    found = windows()
    for window in range(40):
        found.add(count_messages([message(batch(5.0 * window + 1))], 5.0))
        found.close()
    assert len(found._counts) <= live.LATENESS_S / 5 + 3
    assert len([row for row in found.view()["lines"] if row["kind"] == "all"]) == 20


def test_what_cannot_be_read_is_skipped_and_logged_once_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    newer = message(batch(1.0), **{VERSION_KEY: "2"})
    foreign: Any = [b"not telemetry", b"", None, newer, message()]
    times = message(batch(1.0), batch(nan), batch(1.0, created_s=-inf), batch(1.0, created_s=1e300))
    found = windows(*foreign, times)
    found.add(count_messages([*foreign, message(batch(2.0))], 5.0))
    view = found.view()
    assert view["all"]["batches"] == 2
    assert sorted(view["skipped"].values()) == [2, 2, 3, 4]
    assert view["skipped"]["a batch has a time that is not finite"] == 3
    assert len(caplog.records) == 4
    for part in ("no Arrow stream", "NoneType", "version 2 of", "not finite"):
        assert part in caplog.text


@pytest.mark.parametrize(("ahead_s", "dropped"), [(25.0, 0), (59.0, 0), (172_800.0, 1)])
def test_a_clock_that_is_ahead_does_not_close_the_windows_of_others(
    ahead_s: float, dropped: int
) -> None:
    found = windows(message(batch(999.0)))
    found.add(count_messages([message(batch(1000.0 + ahead_s))], 5.0))
    found.close()
    found.add(count_messages([message(batch(999.0), batch(985.0))], 5.0))
    view = found.view()
    assert (view["ahead"], view["late"], view["all"]["batches"]) == (dropped, 0, 4 - dropped)
    assert view["newest_outcome_s"] <= STARTED + 1000


def test_no_outcome_is_newest_before_the_first_batch() -> None:
    view = windows(b"not telemetry").view()
    assert (view["newest_outcome_s"], view["all"], view["lines"]) == (None, None, [])


def test_messages_are_counted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [message(*(batch(n + m / 7, m % 3) for m in range(7))) for n in range(12)]
    whole = windows(*messages).view()
    monkeypatch.setattr(live, "BATCHES_AT_A_TIME", 20)
    parts = list(count_messages(messages, 5.0))
    assert len(parts) > len(list(count_messages(messages[:1], 5.0)))
    found = LiveWindows(5.0, lambda: STARTED + 1000.0)
    found.add(parts)
    assert found.view()["all"] == whole["all"]
    assert found.view()["lines"] == whole["lines"]


def rows_at(*starts_ms: int) -> list[Row]:
    return [{"window_start": start, "kind": "all", "batches": 1.0} for start in starts_ms]


def test_a_file_has_a_minute_and_partial_minutes_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "find_spec", lambda _: None)
    table = WindowTable(tmp_path, first_ms=MINUTE)
    table.add(rows_at(30_000, MINUTE, MINUTE + 5000))
    assert list(tmp_path.rglob("*.parquet")) == []
    table.add(rows_at(MINUTE + 10_000, 2 * MINUTE, 3 * MINUTE))
    files = sorted((tmp_path / "windows.parquet").rglob("windows-*.parquet"))
    where = [str(file.relative_to(tmp_path / "windows.parquet")) for file in files]
    assert where == [f"date=1970-01-01/windows-000{n}.parquet" for n in (1, 2)]
    with pq.ParquetFile(files[0]) as file:
        assert file.read()["batches"].to_pylist() == [1.0] * 3
    table.add(rows_at(3 * MINUTE + 5000), is_end=True)
    with pq.ParquetFile(files[0].with_name("windows-0003.parquet")) as file:
        assert file.read()["batches"].to_pylist() == [1.0] * 2


def test_a_later_start_replaces_a_part_of_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "find_spec", lambda _: None)
    WindowTable(tmp_path, first_ms=0).add(rows_at(MINUTE), is_end=True)
    WindowTable(tmp_path, first_ms=0).add(rows_at(MINUTE, MINUTE + 5000, 2 * MINUTE))
    (file,) = tmp_path.rglob("windows-*.parquet")
    with pq.ParquetFile(file) as opened:
        assert opened.read()["batches"].to_pylist() == [1.0, 1.0]


def test_at_the_end_open_windows_are_rows_too() -> None:
    found = windows(message(*(batch(5.0 * n + 1) for n in range(8))))
    closed, remaining = found.close(), found.close(open_ones=True)
    starts = [row["window_start"] for row in (*closed, *remaining) if row["kind"] == "all"]
    assert len(closed) > 0
    assert len(starts) == 8
    assert starts == sorted(set(starts))
    assert found.close(open_ones=True) == []


def test_at_the_end_windows_ahead_of_the_clock_are_rows_too() -> None:
    found = windows(message(batch(999.0), batch(1040.0)))
    starts = {row["window_start"] // 1000 - STARTED for row in found.close(open_ones=True)}
    assert starts == {995, 1040}


def test_one_process_writes_to_a_folder(tmp_path: Path) -> None:
    wanted = "another kafkaclient report --follow writes to"
    with alone(tmp_path), pytest.raises(ConfigError, match=wanted), alone(tmp_path):
        pytest.fail("two processes write")
    with alone(tmp_path):
        pass


def test_the_page_s_data_is_a_script(tmp_path: Path) -> None:
    write_view(tmp_path, windows(message(batch(1.0))).view())
    text = (tmp_path / "live.js").read_text()
    assert text.startswith("show({")
    view = json.loads(text.removeprefix("show(").removesuffix(");\n"))
    assert view["all"]["batches"] == 1
    assert view["written_s"] > 0
