"""What tasks count, against the same batches counted one by one."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.spark.report import counting
from kafkaclient.spark.report.counting import (
    PACKED_COUNTS,
    SUMS,
    add_up,
    count_files,
    sum_groups,
    unpack,
)
from kafkaclient.spark.report.facts import TIMES, Period, read_file
from kafkaclient.telemetry import SCHEMA, SCHEMA_VERSION, VERSION_KEY

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]

WINDOW_S = 0.1


def batch(rng: Random) -> Row:
    """Delivered mostly; some failed at some time, before or after they were sent."""
    created = rng.uniform(0, 3)
    bound = created + rng.expovariate(100)
    sent = bound + rng.expovariate(1000)
    acknowledged = sent + rng.choice((0.0, rng.expovariate(50)))
    failed = rng.random() < 0.2
    known = rng.randrange(4) if failed else 4
    times = [time if n < known else None for n, time in enumerate((bound, sent, acknowledged), 1)]
    return {
        **{field.name: 0 for field in SCHEMA},
        "client_id": "c",
        "in_flight": rng.randrange(5),
        "queued_batches": rng.randrange(4),
        "topic": rng.choice(("a", "b")),
        "partition": rng.randrange(3),
        "broker": rng.randrange(2),
        "records": rng.randrange(1, 100),
        "bytes": rng.randrange(1, 10_000),
        "attempts": rng.choice((1, 1, 1, 2, 5)),
        "created_s": created,
        "bound_s": times[0],
        "sent_s": times[1],
        "acknowledged_s": times[2],
        "done_s": next(time for time in (*reversed(times), created) if time is not None),
        "bound_by": rng.choice(("late", "append")),
        "error": rng.choice(("BrokerError", "DeliveryTimeoutError")) if failed else None,
    }


def write(path: Path, rows: list[Row], started_s: float, **metadata: str) -> None:
    started = datetime.fromtimestamp(started_s, UTC).isoformat()
    known = {"kafkaclient.started": started, VERSION_KEY: str(SCHEMA_VERSION)}
    schema = SCHEMA.with_metadata(known | metadata)
    pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=100)


def shipped_for(files: list[tuple[int, str, str]]) -> list[Row]:
    counted = count_files(files, WINDOW_S)
    rows: list[Row] = pa.Table.from_batches(counted, PACKED_COUNTS).to_pylist()
    return rows


def bucket(took_s: float, per_doubling: int) -> int:
    return math.floor(per_doubling * math.log2(max(took_s, 1e-6)))


def by_hand(batches: list[tuple[int, float, Row]]) -> dict[tuple[Any, ...], Row]:
    """``batches``: each with its run, and when its producer's time begins."""
    found: dict[tuple[Any, ...], Row] = {}

    def add(key: Row, sums: Row, **bounds: Any) -> None:
        row = found.setdefault(tuple(sorted(key.items())), dict(key))
        for name, value in {"batches": 1, **sums}.items():
            row[name] = row.get(name, 0) + value
        for name, (choose, value) in bounds.items():
            row[name] = choose(row.get(name, value), value)

    for run, offset_s, row in batches:
        times = [row[name] for name in ("created_s", "bound_s", "sent_s", "acknowledged_s")]
        created, bound, sent, acknowledged = times
        place = {"run": run, **{name: row[name] for name in ("topic", "partition", "broker")}}
        begun = created if sent is None else sent
        second = {"second": math.floor(begun + offset_s), "error": row["error"]}
        sums = {"records": row["records"], "bytes": row["bytes"], "retried": row["attempts"] > 1}
        chosen = row["bound_by"] != "append" and row["error"] is None
        sums |= {"append": row["bound_by"] == "append", "chosen": chosen}
        sums["chosen_s"] = acknowledged - bound if chosen else 0.0
        add(
            {"kind": "seconds", **place, **second},
            sums,
            first_s=(min, created + offset_s),
            last_s=(max, max(time for time in times if time is not None) + offset_s),
        )
        if row["error"] is not None:
            continue
        took = (bound - created, sent - bound, acknowledged - sent, acknowledged - created)
        for part, took_s in enumerate(took):
            key = {"kind": "histogram", **place, "part": part, "bucket": bucket(took_s, 32)}
            add(key, {"total_s": took_s}, longest_s=(max, took_s))
        cell = {"run": run, "broker": row["broker"], "bound_by": row["bound_by"]}
        cell["is_chosen"] = row["bound_by"] != "append"
        moment = {"moment": math.floor((sent + offset_s) / WINDOW_S), "bucket": bucket(took[2], 8)}
        add({"kind": "cells", **cell, **moment}, {"total_s": took[2]})
    return found


def rows_of(kind: str, table: pa.Table) -> dict[tuple[Any, ...], Row]:
    """With their keys, as :func:`by_hand` has them."""
    keys = SUMS[kind][0]
    return {
        tuple(sorted({"kind": kind, **{name: row[name] for name in keys}}.items())): {
            "kind": kind,
            **row,
        }
        for row in table.to_pylist()
    }


@pytest.mark.parametrize("at_once", [1, 700, 10**6])
def test_all_batches_are_counted_as_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(counting, "BATCHES_AT_A_TIME", at_once)
    rng = Random(5)
    files, batches = [], []
    for number, size in enumerate((400, 0, 500, 300)):
        rows = [batch(rng) for _ in range(size)]
        path, run, offset_s = tmp_path / f"batches-{number}.parquet", number % 2, 0.25 * number
        write(path, rows, offset_s)
        files.append((run, str(tmp_path), str(path)))
        batches += [(run, offset_s, row) for row in rows]
    shipped = shipped_for(files)
    found: dict[tuple[Any, ...], Row] = {}
    for kind in ("seconds", "histogram", "cells"):
        parts = [unpack(row["counts"]) for row in shipped if row["kind"] == kind]
        found |= rows_of(kind, sum_groups(kind, pa.concat_tables(parts)))
    expected = by_hand(batches)
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert found[key] == pytest.approx(row), key


def test_counts_added_up_together_are_in_one_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gets a slice has all of its moments, and never more than a minute."""
    monkeypatch.setattr(counting, "_SLICE_S", 1.0)
    monkeypatch.setattr(counting, "_SLICE_PARTITIONS", 2)
    rng, path = Random(6), tmp_path / "batches-1.parquet"
    write(path, [batch(rng) for _ in range(500)], 0.5)
    shipped = shipped_for([(run, str(tmp_path), str(path)) for run in (0, 1)])
    slices: dict[tuple[str, int], list[int]] = {}
    several: list[set[tuple[str, int]]] = []
    for row in shipped:
        slices.setdefault((row["kind"], row["run"]), []).append(row["slice"])
        kind, table = row["kind"], unpack(row["counts"])
        assert set(table["run"].to_pylist()) == {row["run"]}
        if kind == "histogram":
            rows = table.to_pylist()
            several.append({(each["topic"], each["partition"] // 2) for each in rows})
            continue
        column, size = {"seconds": ("second", 1), "cells": ("moment", 10)}[kind]
        assert {value // size for value in table[column].to_pylist()} == {row["slice"]}
    for (kind, _), numbers in slices.items():
        assert kind == "histogram" or sorted(numbers) == list(range(4))
    # Two topics of three partitions each, in both runs; neither is spread over more slices.
    assert sorted(len(places) for places in several) == [1] * 8


def test_a_task_without_files_counts_nothing() -> None:
    assert list(count_files([], WINDOW_S)) == []


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more", None])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "batches-a.parquet"
    if content is None:
        pq.write_table(pa.table({"topic": ["t"]}), path)
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"batches-a\.parquet cannot be read: "):
        list(read_file(str(tmp_path), str(path), 0))


def test_a_task_ends_with_the_error_of_a_file_as_its_last_row(tmp_path: Path) -> None:
    good, bad = tmp_path / "batches-1.parquet", tmp_path / "batches-2.parquet"
    write(good, [batch(Random(1))], 0.0)
    bad.write_bytes(b"PAR1 and no more")
    (row,) = shipped_for([(1, str(tmp_path), str(path)) for path in (good, bad, good)])
    key = (pa.scalar(row["kind"]), pa.scalar(0), pa.scalar(0))
    table = add_up(key, pa.Table.from_pylist([row], PACKED_COUNTS), 2.0, 0.001)
    assert table["kind"].to_pylist() == ["unreadable"]
    assert "batches-2.parquet cannot be read" in table["error"][0].as_py()


def test_deleted_files_are_counted_and_an_error_of_the_system_ends_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "batches-1.parquet"
    write(path, [batch(Random(1))], 0.0)

    def opened(root: str, path: str, *rest: Any) -> Any:
        if path.endswith("gone"):
            raise FileNotFoundError(path)
        if path.endswith("down"):
            raise OSError("the server is down")
        return read_file(root, path, *rest)

    monkeypatch.setattr(counting, "read_file", opened)
    files = [(run, str(tmp_path), name) for run, name in ((1, "gone"), (1, str(path)), (2, "gone"))]
    rows = shipped_for(files)
    deleted = [unpack(row["counts"]).to_pylist() for row in rows if row["kind"] == "deleted"]
    assert deleted == [[{"run": run, "batches": 1.0}] for run in (1, 2)]
    assert {row["kind"] for row in rows} == {"seconds", "histogram", "cells", "deleted"}
    (row,) = shipped_for([(1, str(tmp_path), "down")])
    assert row["kind"] == "failed"
    assert unpack(row["counts"])["error"].to_pylist() == ["the server is down"]


def test_impossible_times_are_left_out(tmp_path: Path) -> None:
    path, rows = tmp_path / "batches-1.parquet", [batch(Random(n)) for n in range(3)]
    rows[0]["created_s"], rows[1]["sent_s"] = math.nan, math.inf
    write(path, rows, 0.0)
    assert len(read(path)[0]) == 1


def read(path: Path, **limits: float) -> tuple[pa.Table, list[Row]]:
    parts = list(read_file(str(path.parent), str(path), 3, Period(**limits)))
    return pa.concat_tables([p for p, _ in parts]), [r for _, e in parts for r in e.to_pylist()]


def test_only_batches_of_the_period_are_read(tmp_path: Path) -> None:
    path, rng = tmp_path / "batches-a-000000.parquet", Random(7)
    rows = sorted((batch(rng) for _ in range(1000)), key=lambda row: row["created_s"])
    write(path, rows, 1000.0)
    found, _ = read(path, since_s=1001.0, until_s=1002.0)
    ended = [1000 + next(row[n] for n in reversed(TIMES) if row[n] is not None) for row in rows]
    expected = [at for at in ended if 1001.0 <= at < 1002.0]
    assert found["ended_s"].to_pylist() == pytest.approx(expected)
    assert 0 < len(expected) < 1000


def test_a_failure_is_in_the_period_in_which_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "batches-a-000000.parquet"
    failed = {"created_s": 1.0, "bound_s": None, "sent_s": None, "acknowledged_s": None}
    row = batch(Random(9)) | failed | {"done_s": 121.5, "error": "DeliveryTimeoutError"}
    write(path, [row], 1000.0)
    assert read(path)[0]["ended_s"].to_pylist() == [1121.5]
    assert len(read(path, since_s=1120.5, until_s=1122.5)[0]) == 1
    before = read_file(str(tmp_path), str(path), 3, Period(until_s=1121.0))
    assert sum(len(found) for found, _ in before) == 0


def test_a_file_that_is_gone_is_told_from_one_that_is_no_telemetry(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_file(str(tmp_path), str(tmp_path / "batches-gone.parquet"), 0))


def test_errors_of_files_have_no_secrets(tmp_path: Path) -> None:
    path = tmp_path / "batches-a.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(ConfigError, match=r"\?\[hidden\]: .*batches-a\.parquet cannot") as refused:
        list(read_file(f"file://{tmp_path}?password=hunter2", str(path), 0))
    assert "hunter2" not in str(refused.value)


def test_a_sample_stands_for_all_batches(tmp_path: Path) -> None:
    path, rng = tmp_path / "batches-a-000000.parquet", Random(8)
    excluded = json.dumps([{"broker": 1, "reason": "slow", "times": 3}])
    sample = {"kafkaclient.telemetry.sample": "0.25", "kafkaclient.exclusions": excluded}
    rows = [batch(rng) for _ in range(50)]
    write(path, rows, 0.0, **sample)
    found, exclusions = read(path)
    assert found["batches"].to_pylist() == [4.0] * 50
    assert found["records"].to_pylist() == [4.0 * row["records"] for row in rows]
    assert exclusions == [{"run": 3, "broker": 1, "error": "slow", "batches": 3.0}]
