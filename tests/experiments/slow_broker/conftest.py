"""Results of an experiment, made up: two settings and Java's, twice each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from experiments.machine import machine_facts
from experiments.slow_broker.plan import Plan
from experiments.slow_broker.results import Latencies, Recorded, Results, Skipped
from experiments.slow_broker.settings import choose
from kafkaclient.perf.run import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def record() -> Callable[..., RunRecord]:
    def make(client: str, setting: str, avg_ms: float, run: int = 1, **more: object) -> RunRecord:
        made = RunRecord(
            client=client,
            setting=setting,
            rate=2048.0,
            linger_ms=5.0,
            run=run,
            records=2048,
            seconds=1.0,
            records_per_s=2048.0,
            mb_per_s=1.0,
            avg_ms=avg_ms,
            p50_ms=avg_ms / 2,
            p95_ms=avg_ms * 2,
            p99_ms=avg_ms * 4,
            p999_ms=avg_ms * 5,
            max_ms=avg_ms * 6,
            bytes_per_broker=(250_000, 375_000, 375_000),
            requests_per_broker=(50, 75, 75),
            requests_per_s=200.0,
        )
        return replace(made, **more)  # type: ignore[arg-type]

    return make


@pytest.fixture
def results(record: Callable[..., RunRecord]) -> Results:
    plan = Plan(settings=tuple(choose(["java"], "default")), rates=(2048.0,), repeat=2)
    checked = {"lost": 0, "duplicated": 0, "reordered": 0}
    runs = [
        record("kafkaclient", "default", 8.0, **checked),
        record("java", "adaptive linger 5", 40.0),
        record("kafkaclient", "kip794 adaptive linger 0", 32.0, **checked),
        record("java", "adaptive linger 0", 44.0),
        record("kafkaclient", "default", 10.0, run=2, requests_per_s=300.0, **checked),
        record("java", "adaptive linger 5", 20.0, run=2),
    ]
    return Results(
        plan=plan.as_json(),
        machine=machine_facts(kafka="4.3.1"),
        runs=runs,
        steady_state=[
            replace(run, avg_ms=(run.avg_ms or 0) / 2, bytes_per_broker=None) for run in runs
        ],
        recorded=[Recorded(record("kafkaclient", "default", 9.0), "telemetry/default")],
        skipped=[Skipped("kafkaclient", "sticky linger 0", "no such <partitioner>")],
        latencies=[
            Latencies(
                run.client,
                run.setting,
                2048.0,
                run.run,
                tuple(
                    (share, (run.avg_ms or 0) * share / 50)
                    for share in ((50.0, 99.0) if run.client == "java" else (1.0, 50.0, 90.0, 99.0))
                ),
            )
            for run in runs
        ],
        complete=True,
    )
