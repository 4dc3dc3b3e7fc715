"""Files and page made of a campaign."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from experiments.experiment import REPORT, SUMMARY
from experiments.streams_chaos.gaps import KindGaps
from experiments.streams_chaos.plan import Plan
from experiments.streams_chaos.report import sentence, write_report
from experiments.streams_chaos.results import Campaign, Results
from experiments.streams_chaos.schedule import Fault, FaultKind
from experiments.streams_chaos.strikes import Struck

if TYPE_CHECKING:
    from pathlib import Path


def results(wrong: int = 0, repeated: int = 0) -> Results:
    fault = Fault(at=1.0, kind=FaultKind.CUT_OFF, which=2, seconds=3.0)
    return Results(
        Plan().as_json(),
        complete=True,
        campaign=Campaign(
            records=36_000,
            wrong=wrong,
            repeated=repeated,
            examples=("task 0_1: <key>",) if wrong else (),
            rebalances=12,
            evictions=3,
            longest_gap_s=9.25,
            drained_s=12.0,
            ended=(),
            gaps=(KindGaps("cut off", 1, 9.25, None),),
            struck=(Struck(fault=fault, began=100.0, ended=103.5),),
        ),
    )


def test_the_summary(tmp_path: Path) -> None:
    results().write(tmp_path)
    summary = json.loads((tmp_path / SUMMARY).read_text())
    [run] = summary["runs"]
    assert (run["records"], run["wrong"], run["evictions"]) == (36_000, 0, 3)
    assert run["gaps"][0]["longest_gap_s"] == 9.25
    assert summary["faults"] == [
        {"at": 1.0, "kind": "cut off", "which": 2, "seconds": 3.0, "lasted_s": 3.5, "note": ""}
    ]


def test_before_the_end_there_is_nothing_to_report(tmp_path: Path) -> None:
    empty = Results(Plan().as_json())
    empty.write(tmp_path)
    assert json.loads((tmp_path / SUMMARY).read_text())["runs"] == []
    assert not empty.has_runs
    assert not empty.is_clean


def test_a_wrong_count_is_an_error() -> None:
    assert results().is_clean
    assert not results(wrong=1).is_clean


def test_a_repeated_count_is_told() -> None:
    campaign = results(repeated=7).campaign
    assert campaign is not None
    assert "36,000 records, none lost, 7 counted again; 1 faults" in sentence(campaign)


def test_the_page(tmp_path: Path) -> None:
    write_report(tmp_path, results(wrong=1))
    page = (tmp_path / REPORT).read_text()
    assert "1 counts wrong" in page
    assert "&lt;key&gt;" in page
    assert "9.25" in page
