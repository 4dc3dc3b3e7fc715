from __future__ import annotations

import sys

import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.pages import Curve, check_plotly, latency_ecdf, latency_tail


def curve(name: str = "a", latency_s: float = 0.01, color: str = "#000") -> Curve:
    shares = [*range(1, 100), 99.9, 99.99, 100]
    return Curve(
        name, color, [(0.0, latency_s * 1e3)] + [(s, latency_s * (1e3 + 10 * s)) for s in shares]
    )


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


def test_without_plotly_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ConfigError, match=r"plotly.*pip install 'kafkaclient\[report\]'"):
        check_plotly()
