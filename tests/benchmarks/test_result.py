from __future__ import annotations

from array import array
from dataclasses import fields

from benchmarks.produce.entry import Entry, Job
from benchmarks.produce.meter import latencies, percentile
from benchmarks.produce.result import Measured, run_fields
from kafkaclient.perf.run import RunRecord

JOB = Job(
    entry=Entry(client="c", setting="s", way="w"),
    bootstrap="",
    topic="t",
    folder="",
    seconds=1.0,
)
MEASURED = Measured(
    records=1000,
    seconds=0.5,
    cpu_seconds=0.001,
    value_bytes=1024.0,
    written=1001,
    extras={"p50_ms": 1.0, "batches": 7},
)


def test_a_run_has_the_fields_of_every_run_and_its_own() -> None:
    found = run_fields(JOB, MEASURED, 2)
    assert {field.name for field in fields(RunRecord)} <= set(found)
    assert found["run"] == 2
    assert (found["records_per_s"], found["cpu_us_per_record"]) == (2000.0, 1.0)
    assert (found["mb_per_s"], found["p50_ms"], found["batches"]) == (1.953125, 1.0, 7)


def test_a_run_without_records_has_no_cost_per_record() -> None:
    idle = Measured(records=0, seconds=1.0, cpu_seconds=0.1, value_bytes=0.0, written=5)
    assert run_fields(JOB, idle, 1)["cpu_us_per_record"] is None


def test_percentiles() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 3.0
    assert percentile([1.0], 99.9) == 1.0
    found = latencies(array("d", [0.003, 0.001, 0.002]))
    assert (found["p50_ms"], found["max_ms"]) == (2.0, 3.0)
    assert latencies(array("d")) == {}
