from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

from kafkaclient.spark.report.findings import curve, findings, write_findings
from kafkaclient.spark.report.job import Judgement

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.spark.report.job import Tables
    from kafkaclient.spark.report.queries import TelemetryRun


def test_a_runs_findings_are_its_own(runs: list[TelemetryRun], tables: Tables) -> None:
    before, after = findings(runs, tables)
    assert (before.run, after.run) == ("before", "<after>")
    assert (before.records_per_s, before.mb_per_s) == (500.0, 2.0)
    assert (before.errors, after.errors) == ({"DeliveryTimeoutError": 7}, {})
    assert (before.part("whole")["p99_ms"], after.part("answering")["p99_ms"]) == (40.0, 10.0)
    assert [row["partition"] for row in before.by("partition")] == [0, 1]
    assert [row["broker"] for row in before.by("broker")] == [0]
    assert [row["topic"] for row in before.by("topic")] == ["t"]
    assert before.verdict["regretted"] == 0.25


def test_a_run_that_sent_nothing_is_left_out(runs: list[TelemetryRun], tables: Tables) -> None:
    del tables.totals[0]
    (found,) = findings(runs, tables)
    assert found.run == "<after>"


def test_a_histogram_becomes_cumulated_shares() -> None:
    points = curve([{"bucket": -33, "batches": 3}, {"bucket": -1, "batches": 1}])
    assert points == [(75.0, 500.0), (100.0, 1000.0)]
    assert curve([]) == []


def test_the_summary_compares_with_the_first(
    runs: list[TelemetryRun], tables: Tables, tmp_path: Path
) -> None:
    write_findings(tmp_path / "new", findings(runs, tables), Judgement())
    summary = json.loads((tmp_path / "new" / "summary.json").read_text())
    assert summary["judgement"] == {"window_s": 0.1, "times": 2.0, "least_s": 0.001}
    before, after = summary["runs"]
    assert set(before["against_first"].values()) == {1.0}
    assert after["against_first"]["p99_ms"] == 0.25
    assert {row["broker"] for row in before["latency"]} == {None, 0}
    assert all(row["p99_ms"] == 40.0 for row in before["latency"])
    assert [row["regretted"] for row in before["decisions"]] == [0.25, 0.5, 0.125]


def test_tables_are_csv(runs: list[TelemetryRun], tables: Tables, tmp_path: Path) -> None:
    write_findings(tmp_path, findings(runs, tables), Judgement())
    with (tmp_path / "latency.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(tables.latency)
    assert rows[0]["run"] == "before"
    assert rows[0]["broker"] == ""
    with (tmp_path / "decisions.csv").open(newline="") as file:
        assert [row["bound_by"] for row in csv.DictReader(file)] == ["", "", "late"] * 2
