from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from kafkaclient.experiments.figures import (
    Curve,
    broker_share,
    gauges,
    latency_ecdf,
    latency_tail,
)
from kafkaclient.experiments.latency import Distribution

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.experiments.demo import DemoRun

    Make = Callable[..., DemoRun]


def curve(name: str = "a", latency_s: float = 0.01, colour: str = "#000") -> Curve:
    latencies = array("f", [latency_s * (1 + n / 1000) for n in range(1000)])
    return Curve(name, colour, Distribution(latencies).points())


def test_the_ecdf_rises_from_the_lowest_latency_to_the_highest() -> None:
    (line,) = latency_ecdf([curve()])["data"]
    assert line["x"] == sorted(line["x"])
    assert line["y"] == sorted(line["y"])
    assert line["x"][0] == pytest.approx(10, rel=0.02)
    assert line["x"][-1] == pytest.approx(20, rel=0.01)


def test_the_tail_gives_each_nine_the_same_room() -> None:
    figure = latency_tail([curve("a"), curve("b", 0.02, "#111")])
    assert [line["name"] for line in figure["data"]] == ["a", "b"]
    line = figure["data"][0]
    at = dict(zip(line["x"], line["customdata"], strict=True))
    assert (at[0.0], at[1.0], at[2.0]) == (0.0, 90.0, 99.0)
    assert line["y"] == sorted(line["y"])
    assert len({line["line"]["color"] for line in figure["data"]}) == 2


def test_a_curve_of_which_little_is_known_is_drawn_as_such() -> None:
    sketch = Curve("java", "#000", [(50.0, 6.0), (99.0, 140.0), (100.0, 300.0)], sketched=True)
    (line,) = latency_tail([sketch])["data"]
    assert (line["mode"], line["line"]["dash"]) == ("lines+markers", "dot")
    assert line["x"] == pytest.approx([0.301, 2.0], abs=1e-3)
    (line,) = latency_ecdf([sketch])["data"]
    assert line["y"] == [50, 99, 100]


def test_shares_add_up_and_equal_ones_are_marked() -> None:
    figure = broker_share([("a", (50_000, 100_000, 150_000)), ("b", (1, 1, 2))])
    assert [bar["name"] for bar in figure["data"]] == ["broker 0 (late)", "broker 1", "broker 2"]
    assert [sum(bar["x"][run] for bar in figure["data"]) for run in (0, 1)] == [100, 100]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == pytest.approx(
        [33.33, 66.67], 1e-3
    )


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
