"""Files and page made of results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from experiments.experiment import REPORT, SUMMARY
from experiments.word_count.plan import FAUST, OURS, Plan
from experiments.word_count.report import runs_by_client, write_report
from experiments.word_count.results import Results, Run, Skipped

if TYPE_CHECKING:
    from pathlib import Path


def run(client: str, number: int, words_per_s: float, wrong: int = 0) -> Run:
    return Run(
        client=client,
        run=number,
        exactly_once=client != FAUST,
        words=1000,
        seconds=1000 / words_per_s,
        words_per_s=words_per_s,
        cpu_s=0.01 * number,
        startup_s=1.0,
        rss_mb=60.0,
        changes=500,
        wrong=wrong,
        missing=0,
        surplus=wrong,
        examples=("<word>: 2 instead of 1",) if wrong else (),
    )


def results(wrong: int = 0) -> Results:
    return Results(
        Plan(runs=3).as_json(),
        runs=[
            *(run(OURS, n, speed, wrong) for n, speed in ((1, 100.0), (2, 400.0), (3, 300.0))),
            run(FAUST, 1, 60.0, wrong=2),
        ],
        complete=True,
    )


def test_medians_and_ratios() -> None:
    ours, faust = results().medians()
    assert (ours.runs, ours.words_per_s, ours.ours_is, ours.wrong) == (3, 300.0, 1.0, 0)
    assert ours.cpu_us_per_word == 20.0
    assert (faust.words_per_s, faust.ours_is, faust.wrong) == (60.0, 5.0, 2)


def test_without_a_run_of_ours_there_is_no_ratio() -> None:
    found = results()
    found.runs = found.runs[3:]
    assert [each.ours_is for each in found.medians()] == [None]


def test_clean_is_every_run_made_and_our_counts_exact() -> None:
    found = results()
    assert found.is_clean  # a peer may be wrong
    found.skipped.append(Skipped(FAUST, 2, "ended"))
    assert not found.is_clean
    assert not results(wrong=1).is_clean


def test_files_and_page(tmp_path: Path) -> None:
    found = results()
    found.skipped.append(Skipped(FAUST, 2, "<ended>"))
    found.write(tmp_path)
    summary = json.loads((tmp_path / SUMMARY).read_text())
    assert summary["runs"][3]["examples"] == ["<word>: 2 instead of 1"]
    assert summary["medians"][1]["ours_is"] == 5.0
    write_report(tmp_path, found)
    page = (tmp_path / REPORT).read_text()
    assert "5.0 times" in page
    assert "2 (at least once)" in page
    assert "&lt;ended&gt;" in page
    assert [bar["name"] for bar in runs_by_client(found)["data"]] == [OURS, FAUST]
