from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest

from kafkaclient.spark.report.choices import Saving
from kafkaclient.spark.report.job import Tables
from kafkaclient.spark.report.queries import TelemetryRun
from kafkaclient.telemetry import TelemetryFile

SAVING = [field.name for field in fields(Saving)]


def latency(run: int, part: str, p99: float, **place: Any) -> dict[str, Any]:
    row = {"run": run, "part": part, "topic": None, "broker": None, "partition": None, **place}
    times = {f"{name}_ms": p99 / 2 for name in ("avg", "p50", "p90", "p95")}
    return {**row, "batches": 100, **times, "p99_ms": p99, "p999_ms": p99, "max_ms": 2 * p99}


def decision(run: int, regretted: float, **kind: Any) -> dict[str, Any]:
    figures = {"batches": 80, "took_ms": 4.0, "others_ms": 3.0, "best_ms": 2.0}
    return {"run": run, "broker": None, "bound_by": None, **figures, "regretted": regretted, **kind}


@pytest.fixture
def runs() -> list[TelemetryRun]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    part = TelemetryFile("batches-a-1-000000.parquet", at, 100, "batches-a-1", 0)
    return [TelemetryRun(name, f"facts/{name}", (part,), "facts") for name in ("before", "<after>")]


@pytest.fixture
def tables() -> Tables:
    totals = {"batches": 100, "records": 1000, "bytes": 4 * 1024 * 1024, "seconds": 2.0}
    parts = ("deciding", "waiting", "answering", "whole")
    return Tables(
        totals=[
            {"run": 0, **totals, "failed_records": 7, "retried_batches": 1},
            {"run": 1, **totals, "failed_records": 0, "retried_batches": 0},
        ],
        errors=[{"run": 0, "error": "DeliveryTimeoutError", "batches": 1, "records": 7}],
        latency=[
            row
            for run, p99 in ((0, 40.0), (1, 10.0))
            for part in parts
            for row in (
                latency(run, part, p99),
                latency(run, part, p99, topic="t"),
                latency(run, part, p99, broker=0),
                latency(run, part, p99 / 2, topic="t", partition=0),
                latency(run, part, p99, topic="t", partition=1),
            )
        ],
        curves=[
            {"run": run, "bucket": bucket, "batches": batches}
            for run in (0, 1)
            for bucket, batches in ((-320, 50), (-192, 30), (-64, 20))
        ],
        skew=[
            {
                "run": run,
                **{
                    f"{of}_skew_{p}": 1.25 for of in ("partition", "broker") for p in ("p50", "p99")
                },
            }
            for run in (0, 1)
        ],
        series=[
            {"run": run, "broker": 0, "bin": place, "bin_s": 1, "bytes": 1024**2, "records": 10}
            for run in (0, 1)
            for place in (0, 2)
        ],
        decisions=[
            row
            for run in (0, 1)
            for row in (
                decision(run, 0.25),
                decision(run, 0.5, broker=0),
                decision(run, 0.125, bound_by="late"),
            )
        ],
        exclusions=[{"run": 0, "broker": 1, "reason": "slow", "times": 3}],
        savings=[{"run": 0, **dict.fromkeys(SAVING, 1.5), "assumed": 0.25}],
    )
