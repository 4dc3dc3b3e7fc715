"""Files and page made of results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from experiments.experiment import REPORT, SUMMARY
from experiments.task_handover.plan import Plan
from experiments.task_handover.report import gaps_by_task, write_report
from experiments.task_handover.results import (
    GAPS,
    Results,
    Run,
    Skipped,
)

if TYPE_CHECKING:
    from pathlib import Path


def results() -> Results:
    return Results(
        Plan().as_json(),
        runs=[
            Run("kip441", "start", 31.5, 0.1, 33.0, 0, 600_000_000, 2, 0, counts_exact=True),
            Run("quixstreams", "start", 40.0, None, 41.0, None, None, 2, 1, counts_exact=False),
        ],
        gaps={"kip441": {"start": [31.5, 0.2]}, "quixstreams": {"start": [40.0, 3.0]}},
        complete=True,
    )


def test_the_summary_has_the_fields_that_it_is_to_have(tmp_path: Path) -> None:
    results().write(tmp_path)
    run = json.loads((tmp_path / SUMMARY).read_text())["runs"][0]
    assert run == {
        "mode": "kip441",
        "step": "start",
        "longest_gap_s": 31.5,
        "longest_gap_staying_s": 0.1,
        "time_to_balance_s": 33.0,
        "warmup_bytes": 0,
        "restored_bytes": 600_000_000,
        "rebalances": 2,
        "evictions": 0,
        "counts_exact": True,
    }
    assert json.loads((tmp_path / GAPS).read_text())["kip441"] == {"start": [31.5, 0.2]}


def test_the_page(tmp_path: Path) -> None:
    found = results()
    found.skipped.append(Skipped("restore-first", "<nobody>"))
    write_report(tmp_path, found)
    page = (tmp_path / REPORT).read_text()
    assert "31.50" in page
    assert "&lt;nobody&gt;" in page
    assert '<td class="bad">no</td>' in page
    assert 'id="gap0"' in page


def test_the_picture_has_a_bar_for_each_task() -> None:
    drawn = gaps_by_task(results(), "start")["data"]
    assert [(bar["name"], bar["x"], bar["y"]) for bar in drawn] == [
        ("kip441", ["0_0", "0_1"], [31.5, 0.2]),
        ("quixstreams", ["0_0", "0_1"], [40.0, 3.0]),
    ]


def test_clean_is_all_done_and_every_count_right() -> None:
    found = results()
    assert not found.is_clean
    found.runs.pop()
    assert found.is_clean
    found.skipped.append(Skipped("quixstreams", "not installed"))
    assert not found.is_clean
