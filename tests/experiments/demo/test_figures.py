from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from experiments.demo.figures import gauges

if TYPE_CHECKING:
    from collections.abc import Callable

    from experiments.demo.experiment import DemoRun

    Make = Callable[..., DemoRun]


def test_gauges_have_a_row_per_run_and_a_column_each(demo_run: Make) -> None:
    figure = gauges([demo_run("a"), demo_run("b")])
    assert len(figure["data"]) == 2 * 3 * 3
    assert figure["layout"]["grid"]["rows"] == 2
    sent, queued, in_flight = (
        [trace for trace in figure["data"] if trace["yaxis"] == axis] for axis in ("y", "y2", "y3")
    )
    assert sent[1]["y"][1:] == pytest.approx([2.0, 2.0, 2.0])
    assert queued[0]["y"] == [2.0] * 4
    assert [trace["y"][0] for trace in in_flight] == [0, 1, 2]
    assert [trace["showlegend"] for trace in figure["data"]].count(True) == 3
    assert figure["layout"]["yaxis4"]["matches"] == "y"
    assert "matches" not in figure["layout"]["yaxis5"]
    assert figure["layout"]["yaxis6"]["matches"] == "y3"


def test_a_run_without_samples_leaves_its_row_empty(demo_run: Make) -> None:
    run = demo_run()
    run.samples.traffic.clear()
    run.samples.seconds.clear()
    assert gauges([run])["data"] == []
