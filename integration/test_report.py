"""``kafkaclient report`` on real Spark, against the same figures counted by pyarrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.telemetry_facts import Shape, write_run
from kafkaclient import telemetry

if TYPE_CHECKING:
    from pathlib import Path

# For a job this short, compiling code well is not worth its time.
SETTINGS = """spark.sql.shuffle.partitions 2
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


def percentiles(values: np.ndarray) -> dict[str, float]:
    return {
        "avg_ms": values.mean(),
        **{f"p{p}_ms": np.percentile(values, p) for p in (50, 90, 95, 99)},
        "max_ms": values.max(),
    }


def is_about(told: dict[str, float], values: np.ndarray) -> bool:
    expected = percentiles(1e3 * values)
    return all(told[name] == pytest.approx(value, rel=0.03) for name, value in expected.items())


@pytest.mark.full
@pytest.mark.timeout(300)
def test_two_runs_compared(tmp_path: Path) -> None:
    facts, out = tmp_path / "the facts", tmp_path / "the report"
    even = Shape(6000, producers=3, batches_per_s=1500.0, failed=0.01, rows_per_file=512)
    write_run(facts / "even", even, seed=1)
    avoiding = Shape(6000, shares=(0.1, 1.0, 1.0), batches_per_s=1500.0)
    write_run(facts / "avoiding", avoiding, seed=2)
    result = report(tmp_path / "conf", facts / "even", facts / "avoiding", "--out", out)
    assert result.returncode == 0, result.stderr
    assert "regretted" in result.stdout
    assert (out / "report.html").stat().st_size > 100_000

    told = json.loads((out / "summary.json").read_text())["runs"]
    assert [run["run"] for run in told] == ["even", "avoiding"]
    for run in told:
        rows = telemetry.read(facts / run["run"]).to_pandas()
        delivered = rows[rows.error.isna()]
        assert run["batches"] == len(rows) == 6000
        assert run["records"] == delivered.records.sum()
        assert run["bytes"] == delivered.bytes.sum()
        assert run["failed_records"] == rows[rows.error.notna()].records.sum()
        took = {
            "deciding": delivered.bound_s - delivered.created_s,
            "waiting": delivered.sent_s - delivered.bound_s,
            "broker": delivered.acknowledged_s - delivered.sent_s,
            "whole": delivered.acknowledged_s - delivered.created_s,
        }
        for part, values in took.items():
            assert is_about(run["latency"][part], values.to_numpy()), part
            for broker, figures in run["brokers"].items():
                chosen = values[delivered.broker == int(broker)]
                assert figures[part]["batches"] == len(chosen)
                assert is_about(figures[part], chosen.to_numpy()), (part, broker)
        decisions = run["decisions"]
        assert decisions["brokers"]["0"]["regretted"] > 0.9, "20 ms where others take 2"
        assert decisions["brokers"]["1"]["regretted"] < 0.1
    first, second = told
    assert first["errors"] == {"DeliveryTimeoutError": first["failed_records"]}
    assert second["errors"] == {}
    assert first["decisions"]["all"]["regretted"] > 2 * second["decisions"]["all"]["regretted"]
    assert second["against_first"]["avg_ms"] < 0.8
    # Three producers started a second apart, each for four seconds, are one run of six.
    assert first["producers"] == 3
    assert first["seconds"] == pytest.approx(6.0, abs=0.2)
    assert second["skew"]["broker_skew_p50"] > first["skew"]["broker_skew_p50"]
