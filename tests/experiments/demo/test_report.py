from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from experiments.demo.experiment import DemoPlan
from experiments.demo.report import write_report
from experiments.demo.stall import Stall
from kafkaclient import pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from experiments.demo.experiment import DemoRun

    Make = Callable[..., DemoRun]


@pytest.fixture(autouse=True)
def _small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_plotly_js", lambda: "/* plotly $not a field */")


def written(path: Path, runs: list[DemoRun]) -> str:
    write_report(path, DemoPlan(), runs)
    return path.read_text(encoding="utf-8")


def test_the_lead_explains_the_stall_if_there_was_one(tmp_path: Path, demo_run: Make) -> None:
    run = demo_run("keyed")
    stalled = replace(run, stall=Stall(10.0, 8000.0, 300.0), to_others=(3400.0, 3350.0))
    text = "takes nothing for 10 s"
    assert text in written(tmp_path / "a.html", [run, stalled])
    assert "3,400 → 3,350" in written(tmp_path / "a.html", [run, stalled])
    assert text not in written(tmp_path / "a.html", [run])


def test_the_page_holds_everything_itself(tmp_path: Path, demo_run: Make) -> None:
    html = written(tmp_path / "new" / "report.html", [demo_run("a"), demo_run("b <i>", 0.02)])
    assert not re.search(r"(src|href)=", html)
    assert "/* plotly $not a field */" in html
    assert "b &lt;i&gt;" in html
    figures = re.search(r"const figures = (.*);\n", html)
    assert figures is not None
    assert set(json.loads(figures[1])) == {"ecdf", "tail", "share", "gauges"}
    assert "8,000 a second" in html
    assert "20 ms late" in html


def test_the_lowest_latencies_are_marked(tmp_path: Path, demo_run: Make) -> None:
    html = written(tmp_path / "report.html", [demo_run("slow", 0.02), demo_run("fast", 0.01)])
    assert re.findall(r'class="best">([\d.]+)<', html) == ["10.0", "15.0", "19.0", "20.0", "20.0"]


def test_the_verdict_says_whether_every_row_is_there(tmp_path: Path, demo_run: Make) -> None:
    assert "verdict good" in written(tmp_path / "good.html", [demo_run()])
    bad = written(tmp_path / "bad.html", [demo_run(), demo_run("b", lost=7)])
    assert "verdict bad" in bad
    assert '<td class="bad">7</td>' in bad
