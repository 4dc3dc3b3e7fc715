from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkaclient import pages
from kafkaclient.spark.report.findings import findings
from kafkaclient.spark.report.job import Judgement
from kafkaclient.spark.report.page import write_report

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.spark.report.job import Tables
    from kafkaclient.spark.report.queries import TelemetryRun


@pytest.fixture
def html(
    runs: list[TelemetryRun], tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.setattr(pages, "_plotly_js", lambda: "/* plotly */")
    path = tmp_path / "new" / "report.html"
    write_report(path, findings(runs, tables), Judgement(), "kafkaclient, Spark")
    return path.read_text(encoding="utf-8")


def test_every_figure_has_its_place(html: str) -> None:
    figures = re.search(r"const figures = (.*);\n", html)
    assert figures is not None
    found = json.loads(figures[1])
    assert set(found) == {"ecdf", "tail", "parts", "sent"}
    assert all(f'id="{name}"' in html for name in found)
    sent = found["sent"]["data"][0]
    assert (sent["x"], sent["y"]) == ([0.5, 1.5, 2.5], [1.0, 0.0, 1.0])
    skews = [trace for trace in found["sent"]["data"] if trace["name"] == "skew"]
    assert [(trace["x"], trace["y"]) for trace in skews] == 2 * [([0.5, 2.5], [1.0, 1.0])]
    legend = [trace["name"] for trace in found["sent"]["data"] if trace["showlegend"]]
    assert legend == ["broker 0"], "once for all runs"
    assert [trace["name"] for trace in found["parts"]["data"]] == [
        "deciding",
        "waiting",
        "answering",
    ]


def test_names_are_text(html: str) -> None:
    assert "&lt;after&gt;" in html
    assert "<after>" not in re.sub(r"const figures = .*;\n", "", html)


def test_the_lower_latencies_and_the_failures_are_marked(html: str) -> None:
    assert re.findall(r'class="best">([\d.]+)<', html) == ["5.0", "5.0", "10.0", "10.0", "20.0"]
    assert '<td class="bad">7</td>' in html
    assert "Records of before that failed: DeliveryTimeoutError (7)." in html
    assert html.count("that failed:") == 1


def test_each_run_is_compared_with_the_first(html: str) -> None:
    rows = re.findall(r"<tr><th scope=row>(?:before|&lt;after&gt;)</th>(.*)</tr>", html)
    cells = [re.findall(r"<td[^>]*>([^<]*)</td>", row)[-4] for row in rows[:2]]
    assert cells == ["", "0.25"]


def test_it_says_so_when_no_decision_can_be_judged(
    runs: list[TelemetryRun], tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_plotly_js", lambda: "")
    found = findings(runs, replace(tables, decisions=[]))
    write_report(tmp_path / "report.html", found, Judgement(), "Spark")
    assert "none: no two brokers" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_slowest_partitions_come_first(html: str) -> None:
    assert re.findall(r">before, (t-\d)<", html) == ["t-1", "t-0"]


def test_how_decisions_are_judged_is_said(html: str) -> None:
    assert "within the same 100 ms" in html
    assert "more than 2 times" in html
    assert "before, broker 0" in html
