"""Files and page made of a campaign."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from experiments.consumer_chaos.oracle import Verdict
from experiments.consumer_chaos.plan import Plan
from experiments.consumer_chaos.report import write_report
from experiments.consumer_chaos.results import Campaign, Results
from experiments.experiment import REPORT, SUMMARY
from experiments.streams_chaos.gaps import KindGaps
from experiments.streams_chaos.schedule import Fault, FaultKind
from experiments.streams_chaos.strikes import Struck

if TYPE_CHECKING:
    from pathlib import Path


def results(ended: tuple[str, ...] = (), **verdict: int) -> Results:
    fault = Fault(at=1.0, kind=FaultKind.RECREATE, which=1, seconds=3.0)
    examples = ["t-0: <value>"] if verdict else []
    return Results(
        Plan().as_json(),
        complete=True,
        campaign=Campaign(
            records=36_000,
            verdict=Verdict(processed=36_100, repeated=100, examples=examples, **verdict),
            drained_s=12.0,
            longest_gap_s=9.25,
            ended=ended,
            gaps=(KindGaps("recreate", 1, 9.25, None),),
            struck=(Struck(fault=fault, began=100.0, ended=103.5),),
        ),
    )


def test_the_summary(tmp_path: Path) -> None:
    results().write(tmp_path)
    summary = json.loads((tmp_path / SUMMARY).read_text())
    [run] = summary["runs"]
    assert (run["records"], run["repeated"], run["lost"]) == (36_000, 100, 0)
    assert run["gaps"][0]["longest_gap_s"] == 9.25
    assert summary["faults"][0]["kind"] == "recreate"


def test_before_the_end_there_is_nothing_to_report(tmp_path: Path) -> None:
    empty = Results(Plan().as_json())
    empty.write(tmp_path)
    assert json.loads((tmp_path / SUMMARY).read_text())["runs"] == []
    assert not empty.has_runs
    assert not empty.is_clean


def test_what_is_an_error() -> None:
    assert results().is_clean
    assert not results(skipped=1).is_clean
    assert not results(shared=1).is_clean
    assert not results(("instance-0: gone",)).is_clean


def test_the_page(tmp_path: Path) -> None:
    write_report(tmp_path, results(lost=1))
    page = (tmp_path / REPORT).read_text()
    assert "1 lost" in page
    assert "&lt;value&gt;" in page
    assert "9.25" in page
