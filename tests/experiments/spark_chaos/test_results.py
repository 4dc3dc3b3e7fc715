"""Files and page made of runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from experiments.experiment import REPORT, SUMMARY
from experiments.spark_chaos.plan import Plan
from experiments.spark_chaos.report import write_report
from experiments.spark_chaos.results import Results, Run
from experiments.spark_chaos.schedule import Fault, FaultKind
from experiments.spark_chaos.strikes import Struck

if TYPE_CHECKING:
    from pathlib import Path


def results(number: int = 1, **figures: int) -> Results:
    """A run of combination 1, exactly once, or of 3, at least once."""
    fault = Fault(at=1.0, kind=FaultKind.DRIVER_KILL, which=2, seconds=3.0)
    counted = {"missing": 0, "repeated": 0, "reordered": 0, "unexpected": 0, "left_open": 0}
    run = Run(
        number=number,
        combination=Plan().cover[number - 1],
        seconds=60.0,
        rows=12_000,
        batches=17,
        driver_starts=3,
        drained_s=20.0,
        examples=("row 1 of <key>",) if figures else (),
        ended=(),
        struck=(Struck(fault=fault, began=1.5, lasted_s=4.0),),
        **counted | figures,
    )
    return Results(Plan().as_json(), complete=True, runs=[run])


def test_the_summary(tmp_path: Path) -> None:
    results().write(tmp_path)
    [run] = json.loads((tmp_path / SUMMARY).read_text())["runs"]
    assert (run["rows"], run["wrong"], run["combination"]["transactions"]) == (12_000, 0, "v1")
    assert run["struck"] == [
        {"at": 1.0, "kind": "driver kill", "which": 2, "seconds": 3.0, "lasted_s": 4.0, "note": ""}
    ]


def test_before_the_end_there_is_nothing_to_report(tmp_path: Path) -> None:
    empty = Results(Plan().as_json())
    empty.write(tmp_path)
    assert json.loads((tmp_path / SUMMARY).read_text())["runs"] == []
    assert not empty.has_runs
    assert not empty.is_clean


@pytest.mark.parametrize("what", ["missing", "reordered", "unexpected", "left_open", "repeated"])
def test_a_wrong_row_is_an_error(what: str) -> None:
    assert results().is_clean
    assert not results(**{what: 1}).is_clean


def test_at_least_once_rows_may_be_repeated() -> None:
    assert results(3, repeated=700).is_clean
    assert not results(3, missing=1).is_clean


def test_a_run_that_failed_is_an_error() -> None:
    found = results()
    found.failed["at least once"] = "TimeoutError: "
    assert found.has_runs
    assert not found.is_clean


def test_the_page(tmp_path: Path) -> None:
    write_report(tmp_path, results(reordered=1))
    page = (tmp_path / REPORT).read_text()
    assert "1 rows wrong" in page
    assert "&lt;key&gt;" in page
    assert "12,000" in page
