from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("matplotlib")

from experiments.slow_broker.compared import compared_table, draw_compared
from experiments.slow_broker.fleet import Fleet
from experiments.slow_broker.results import Results

if TYPE_CHECKING:
    from pathlib import Path

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
    rates, fleets, below = compared_table(results).split("\n\n")
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
    assert below.startswith("Average / p99 in milliseconds, medians of 2 runs of ")


def test_the_picture_has_each_setting(results: Results, tmp_path: Path) -> None:
    results.fleets = [FLEET]
    results.write(tmp_path)
    picture = tmp_path / "slow-broker.svg"
    draw_compared(picture, Results.read(tmp_path))
    assert "java: adaptive linger 5" in picture.read_text("utf-8")
