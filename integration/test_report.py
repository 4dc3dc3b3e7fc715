"""``kafkaclient report`` on real Spark, against the same figures computed by hand."""

from __future__ import annotations

import asyncio
import csv
import json
import math
import os
import signal
import subprocess
import sys
from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.telemetry_facts import Shape, write_run
from kafkaclient import Producer, telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

T = TypeVar("T")

# For a job this short, compiling code well is not worth its time.
SETTINGS = """spark.sql.sources.partitionOverwriteMode dynamic
spark.sql.shuffle.partitions 2
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
"""
COMMAND = [sys.executable, "-c", "from kafkaclient.cli import main; main()", "report"]


def report(settings: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(SETTINGS)
    environment = {"SPARK_CONF_DIR": str(settings), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    return subprocess.run(
        [*COMMAND, *map(str, words), "--master", "local[2]"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, **environment},
    )


def produced(folder: Path) -> list[dict[str, Any]]:
    """All batches of a run, on one axis of time."""
    rows = []
    for path in sorted(folder.rglob("*.parquet")):
        offset_s = telemetry.started_at(path).timestamp()
        with pq.ParquetFile(path) as file:
            rows += [{**row, "offset_s": offset_s} for row in file.read().to_pylist()]
    return rows


def groups(rows: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    found = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def middle_ms(took_s: float) -> float:
    """Of the bucket that counts it."""
    return 1e3 * 2 ** ((math.floor(32 * math.log2(max(took_s, 1e-6))) + 0.5) / 32)


PARTS = {
    "deciding": ("created_s", "bound_s"),
    "waiting": ("bound_s", "sent_s"),
    "answering": ("sent_s", "acknowledged_s"),
    "whole": ("created_s", "acknowledged_s"),
}


def quantile(values: list[float], share: float) -> float:
    """As Spark interpolates if each value counts as a million."""
    found, place = sorted(values), (1e6 * len(values) - 1) * share / 100
    low, high = (found[int(at // 1e6)] for at in (math.floor(place), math.ceil(place)))
    return low + (high - low) * (place - math.floor(place))


def latencies(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Per part of the latency, as a row of latency.csv."""
    found = {}
    for part, (begin, end) in PARTS.items():
        took = [row[end] - row[begin] for row in rows if row["error"] is None]
        middles = [middle_ms(each) for each in took]
        found[part] = {
            "batches": len(took),
            "avg_ms": 1e3 * sum(took) / len(took),
            **{
                f"p{share:g}_ms".replace(".", ""): min(quantile(middles, share), 1e3 * max(took))
                for share in (50, 90, 95, 99, 99.9)
            },
            "max_ms": 1e3 * max(took),
        }
    return found


def skew(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of one topic's batches, all of which were sent."""

    def per_second(place: str) -> list[float]:
        places = len({row[place] for row in rows})
        found = []
        for within in groups(
            rows, lambda row: math.floor(row["sent_s"] + row["offset_s"])
        ).values():
            sent = [
                sum(row["bytes"] for row in each)
                for each in groups(within, itemgetter(place)).values()
            ]
            found.append(max(sent) * places / sum(sent))
        return sorted(found)

    return {
        f"{place}_skew_p{share}": values[math.ceil(share / 100 * len(values)) - 1]
        for place in ("partition", "broker")
        for values in [per_second(place)]
        for share in (50, 99)
    }


def decisions(rows: list[dict[str, Any]]) -> dict[tuple[Any, Any], dict[str, float]]:
    """By (broker, None) and (None, None) for chosen partitions, and by (None, bound_by), as in
    decisions.csv."""

    def took_s(row: dict[str, Any]) -> float:
        return row["acknowledged_s"] - row["sent_s"]

    def mean(batches: list[dict[str, Any]]) -> float:
        return sum(map(took_s, batches)) / len(batches)

    judged = defaultdict(list)
    delivered = [row for row in rows if row["error"] is None]
    for within in groups(
        delivered, lambda row: math.floor((row["sent_s"] + row["offset_s"]) / 0.1)
    ).values():
        brokers = groups(within, itemgetter("broker"))
        if len(brokers) == 1:
            continue
        for alike in groups(
            within,
            lambda row: (
                row["broker"],
                row["bound_by"],
                math.floor(8 * math.log2(max(took_s(row), 1e-6))),
            ),
        ).values():
            mine = alike[0]["broker"]
            best_s = min(mean(theirs) for other, theirs in brokers.items() if other != mine)
            others_s = mean([row for row in within if row["broker"] != mine])
            regretted = mean(alike) > 2 * best_s and mean(alike) > best_s + 1e-3
            verdict = (len(alike), sum(map(took_s, alike)), others_s, best_s, regretted)
            bound_by = alike[0]["bound_by"]
            chosen = ((None, None), (mine, None)) if bound_by != "append" else ()
            for place in (*chosen, (None, bound_by)):
                judged[place].append(verdict)
    return {place: weighed(verdicts) for place, verdicts in judged.items()}


def weighed(verdicts: list[tuple[int, float, float, float, bool]]) -> dict[str, float]:
    batches = sum(count for count, *_ in verdicts)
    return {
        "batches": batches,
        "took_ms": 1e3 * sum(total_s for _, total_s, *_ in verdicts) / batches,
        "others_ms": 1e3 * sum(n * others_s for n, _, others_s, *_ in verdicts) / batches,
        "best_ms": 1e3 * sum(n * best_s for n, _, _, best_s, _ in verdicts) / batches,
        "regretted": sum(n for n, *_, regretted in verdicts if regretted) / batches,
    }


def table(path: Path, run: str, *keys: str) -> dict[tuple[Any, ...], dict[str, float]]:
    """The rows of a run of a CSV file; an empty key is None."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            tuple(row[key] or None for key in keys): {
                name: float(value) for name, value in row.items() if name not in ("run", *keys)
            }
            for row in csv.DictReader(file)
            if row["run"] == run
        }


def table_of_latency(out: Path, run: str) -> dict[tuple[Any, ...], dict[str, float]]:
    return table(out / "latency.csv", run, "part", "topic", "broker", "partition")


def alike(figures: Mapping[str, float]) -> Any:
    """Equal but for how they are rounded."""
    return pytest.approx(dict(figures), rel=1e-6, abs=1e-6)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_two_runs_compared(tmp_path) -> None:
    facts, out = tmp_path / "the facts", tmp_path / "the report"
    even = Shape(6000, producers=3, batches_per_s=1500.0, failed=0.01, rows_per_file=512)
    write_run(facts / "even", even, seed=1)
    avoiding = Shape(6000, shares=(0.1, 1.0, 1.0), batches_per_s=1500.0)
    write_run(facts / "avoiding", avoiding, seed=2)
    earlier = out / "tables" / "counts.parquet" / "kind=unreadable"
    earlier.mkdir(parents=True)
    pq.write_table(pa.table({"error": ["of an earlier report"]}), earlier / "part-0.parquet")
    result = report(tmp_path / "conf", facts / "even", facts / "avoiding", "--out", out)
    assert result.returncode == 0, result.stderr
    assert "regretted" in result.stdout
    assert (out / "report.html").stat().st_size > 100_000

    told = json.loads((out / "summary.json").read_text())["runs"]
    assert [run["run"] for run in told] == ["even", "avoiding"]
    for run in told:
        rows = produced(facts / run["run"])
        delivered = [row for row in rows if row["error"] is None]
        assert run["batches"] == len(rows) == 6000
        for name in ("records", "bytes"):
            assert run[name] == sum(row[name] for row in delivered)
        assert run["failed_records"] == sum(row["records"] for row in rows if row["error"])
        assert run["retried_batches"] == sum(row["attempts"] > 1 for row in rows)
        begun = min(row["created_s"] + row["offset_s"] for row in rows)
        ended = max((row["acknowledged_s"] or row["sent_s"]) + row["offset_s"] for row in rows)
        assert run["seconds"] == pytest.approx(ended - begun, abs=1e-6)
        assert run["skew"] == alike(skew(rows))
        saved = run["saving"]
        assert saved["low_ms"] <= saved["saved_ms"] <= saved["high_ms"]

        latency = table_of_latency(out, run["run"])
        expected = {
            (part, *place): figures
            for place, of_place in (
                ((None, None, None), rows),
                (("load", None, None), rows),
                *(
                    ((None, str(b), None), of)
                    for b, of in groups(rows, itemgetter("broker")).items()
                ),
                *(
                    (("load", None, str(partition)), of)
                    for partition, of in groups(rows, itemgetter("partition")).items()
                ),
            )
            for part, figures in latencies(of_place).items()
        }
        assert latency.keys() == expected.keys()
        for place, figures in expected.items():
            assert latency[place] == alike(figures), place
        verdicts = table(out / "decisions.csv", run["run"], "broker", "bound_by")
        by_hand = decisions(rows)
        assert len(verdicts) == len(by_hand) == 1 + 3 + 2
        for (broker, bound_by), figures in by_hand.items():
            place = (None if broker is None else str(broker), bound_by)
            assert verdicts[place] == alike(figures), place
        assert regretted(run, 0) > 0.9, "20 ms where others take 2"
        assert regretted(run, 1) < 0.1
    first, second = told
    assert first["errors"] == {"DeliveryTimeoutError": first["failed_records"]}
    assert second["errors"] == {}
    # Brokers take 20, 2 and 2 ms: 1 of 21 batches, not 1 of 3, at the slow one saves 5.1 ms.
    assert first["saving"]["saved_ms"] == pytest.approx(0, abs=0.5)
    assert second["saving"]["saved_ms"] == pytest.approx(8 - (20 * 0.1 + 4) / 2.1, abs=0.6)
    assert regretted(first) > 2 * regretted(second)
    assert second["against_first"]["avg_ms"] < 0.8
    # Three producers started a second apart, each for four seconds, are one run of six.
    assert first["producers"] == 3
    assert first["seconds"] == pytest.approx(6.0, abs=0.2)
    assert second["skew"]["broker_skew_p50"] > first["skew"]["broker_skew_p50"]


def regretted(run: dict[str, Any], broker: int | None = None) -> float:
    """The share of the choices of a broker, or of all of them."""
    rows = (row for row in run["decisions"] if row["bound_by"] is None)
    return next(row["regretted"] for row in rows if row["broker"] == broker)


def quantile_bounds(
    middles: list[float], weights: list[float], share: float
) -> tuple[float, float]:
    """The least and the greatest value that may be called the quantile of weighted values."""
    order = np.argsort(middles)
    values, so_far = np.array(middles)[order], np.cumsum(np.array(weights)[order])
    target = share / 100 * so_far[-1]
    places = np.searchsorted(so_far, [target - 1e-3, target + 1e-3])
    low, high = values[np.minimum(places, len(values) - 1)]
    return low, high


@pytest.mark.full
@pytest.mark.timeout(300)
def test_samples_are_counted_exactly(tmp_path) -> None:
    """Each run has the files of two producers, which recorded different shares of their batches:
    every figure that a sample weighs, against a recount without rounding."""
    samples = [(share, 1.05 - share) for share in np.linspace(0.05, 1.0, 12)] + [(0.67, 0.3)]
    rows: dict[str, list[dict[str, Any]]] = {}
    for seed, shares in enumerate(samples):
        folder = tmp_path / f"run-{seed}"
        write_run(folder, Shape(300, producers=2, failed=0.02, batches_per_s=1500.0), seed=seed)
        rows[folder.name] = []
        for path in sorted(folder.rglob("*.parquet")):
            share = shares["batches-p1" in path.name]
            table = pq.read_table(path, partitioning=None)
            metadata = {**table.schema.metadata, telemetry.SAMPLE_KEY: repr(float(share))}
            pq.write_table(table.replace_schema_metadata(metadata), path)
            rows[folder.name] += [{**row, "weight": 1 / share} for row in table.to_pylist()]
    out = tmp_path / "out [x]*"  # no pattern
    folders = [tmp_path / name for name in rows]
    result = report(tmp_path / "conf", *folders, "--out", out)
    assert result.returncode == 0, result.stderr
    for run in json.loads((out / "summary.json").read_text())["runs"]:
        of_run = rows[run["run"]]
        sent = [row for row in of_run if row["error"] is None]
        failed = [row for row in of_run if row["error"] is not None]
        retried = [row for row in of_run if row["attempts"] > 1]

        def weighed(batches: list[dict[str, Any]], figure: str | None = None) -> Any:
            found = sum(row["weight"] * (row[figure] if figure else 1) for row in batches)
            return pytest.approx(found, abs=0.5 + 1e-6)

        assert run["batches"] == weighed(of_run)
        assert run["records"] == weighed(sent, "records")
        assert run["bytes"] == weighed(sent, "bytes")
        assert run["failed_records"] == weighed(failed, "records")
        assert run["retried_batches"] == weighed(retried)
        for (part, topic, broker, partition), figures in table_of_latency(out, run["run"]).items():
            begin, end = PARTS[part]
            of_place = [
                row
                for row in sent
                if topic in (None, row["topic"])
                and broker in (None, str(row["broker"]))
                and partition in (None, str(row["partition"]))
            ]
            took = [row[end] - row[begin] for row in of_place]
            weights = [row["weight"] for row in of_place]
            assert figures["batches"] == weighed(of_place)
            mean_ms = 1e3 * np.average(took, weights=weights)
            assert figures["avg_ms"] == pytest.approx(mean_ms, abs=1e-6)
            assert figures["max_ms"] == pytest.approx(1e3 * max(took), abs=1e-6)
            for share in (50, 90, 95, 99, 99.9):
                bounds = quantile_bounds([*map(middle_ms, took)], weights, share)
                low, high = (min(bound, 1e3 * max(took)) for bound in bounds)
                found = figures[f"p{share:g}_ms".replace(".", "")]
                assert low - 1e-5 <= found <= high + 1e-5, (run["run"], part, share)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_broken_file_is_named_in_one_line(tmp_path) -> None:
    facts = tmp_path / "facts"
    write_run(facts, Shape(100), seed=1)
    broken = sorted(facts.rglob("*.parquet"))[0]
    broken.write_bytes(broken.read_bytes()[:-9])
    result = report(tmp_path / "conf", facts, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert f"{broken} cannot be read" in " ".join(result.stderr.split())
    for trace in ("Traceback", "org.apache.spark"):
        assert trace not in result.stderr


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_ctrl_c_ends_a_live_report_without_stack_traces(
    kafka_cluster, create_topic, topic, tmp_path
) -> None:
    await create_topic(topic, 3)
    servers = kafka_cluster.bootstrap
    words = ["--follow", topic, "-b", servers, "--out", tmp_path / "out", "--master", "local[2]"]
    async with Producer(servers, telemetry=f"topic:{topic}", telemetry_file_ms=100) as producer:
        command = await asyncio.create_subprocess_exec(
            *COMMAND, *map(str, words), stderr=asyncio.subprocess.PIPE
        )
        try:
            while not (tmp_path / "out" / "live.js").exists():
                assert command.returncode is None
                await producer.send_and_wait(topic, b"is a foreign message, too")
            command.send_signal(signal.SIGINT)  # while jobs run
            _, errors = await command.communicate()
        finally:
            if command.returncode is None:
                command.kill()
    assert command.returncode == 130
    assert b"interrupted" in errors
    for trace in (b"Traceback", b"\tat ", b"ERROR"):
        assert trace not in errors, errors.decode()
