from __future__ import annotations

from array import array

import pytest

from experiments.figures import broker_share, points
from kafkaclient.perf.latency import Distribution


def test_shares_add_up_and_equal_ones_are_marked() -> None:
    figure = broker_share([("a", (50_000, 100_000, 150_000)), ("b", (1, 1, 2))])
    assert [bar["name"] for bar in figure["data"]] == ["broker 0 (late)", "broker 1", "broker 2"]
    assert [sum(bar["x"][run] for bar in figure["data"]) for run in (0, 1)] == [100, 100]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == pytest.approx(
        [33.33, 66.67], 1e-3
    )


def test_the_points_of_a_distribution_rise_to_its_highest_latency() -> None:
    latencies = array("f", [0.01 * (1 + n / 1000) for n in range(1000)])
    found = points(Distribution(latencies))
    assert found == sorted(found)
    assert found[0][1] == pytest.approx(10, rel=0.02)
    assert found[-1][1] == pytest.approx(20, rel=0.01)
    assert points(Distribution(array("f"))) == []
