from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

pytest.importorskip("matplotlib")

from experiments.app import app
from experiments.slow_broker.compared import BEGIN, END, compared_table
from experiments.slow_broker.fleet import Fleet

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.slow_broker.results import Results

FLEET = Fleet(
    setting="default",
    producers=30,
    records=100,
    avg_ms=8.04,
    p99_ms=21.0,
    slow_share=0.154,
    evenness=1.004,
)


def test_a_row_for_each_setting_and_a_column_for_each_rate(results: Results) -> None:
    results.fleets = [FLEET]
    results.steady_state.append(replace(results.steady_state[0], setting="slow"))
    results.runs.append(replace(results.runs[0], setting="slow", records_per_s=1024.0))
    rates, fleets = compared_table(results).split("\n\n")
    assert rates.splitlines()[0] == "| client | setting | 2,048/s |"
    for line in (
        "| kafkaclient | default | 4.5 / 36 |",
        "| kafkaclient | slow | **4.0** / 32 (1,024/s) |",
        "| java | adaptive linger 5 | 15.0 / 120 |",
    ):
        assert line in rates.splitlines()
    assert fleets.splitlines() == [
        "| setting of kafkaclient | 30 producers | slow share | most / fewest |",
        "| --- | --- | --- | --- |",
        "| default | 8.0 / 21.0 | 0.15 | 1.00 |",
    ]


def test_the_page_gets_table_and_picture_between_its_marks(
    results: Results, tmp_path: Path
) -> None:
    results.fleets = [FLEET]
    results.write(tmp_path / "results")
    page, picture = tmp_path / "figures/slow-broker.md", tmp_path / "pictures/slow-broker.svg"
    for path in (page, picture):
        path.parent.mkdir()
    page.write_text(f"before\n{BEGIN}what was there\n{END}after\n", encoding="utf-8")

    def run() -> str:
        words = ["compared", str(tmp_path / "results"), str(tmp_path)]
        result = CliRunner().invoke(app, words)
        return result.stdout + result.stderr

    assert run().splitlines() == [str(page), str(picture)]
    text = page.read_text("utf-8")
    assert text.startswith(f"before\n{BEGIN}\n![average")
    assert text.endswith(f"\n{END}after\n")
    assert "what was there" not in text
    assert "| kafkaclient | default |" in text
    assert "java: adaptive linger 5" in picture.read_text("utf-8")

    page.write_text("no marks", encoding="utf-8")
    assert "has no lines <!-- compared" in run()
