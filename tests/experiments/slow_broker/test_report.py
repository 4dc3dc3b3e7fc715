from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from experiments.slow_broker import report
from experiments.slow_broker.decisions import Decisions, Series
from experiments.slow_broker.report import write_report
from kafkaclient import pages
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.slow_broker.results import Results

DECISIONS = Decisions(
    "default", [0.5, 1.5], {0: Series([1.0, None], [0.0, None], [1.0, None], [0.2, 0.0])}
)


@pytest.fixture(autouse=True)
def _without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_plotly_js", lambda: "/* plotly */")
    monkeypatch.setattr(report, "read_decisions", lambda *_: DECISIONS)


def written(folder: Path, results: Results) -> str:
    write_report(folder, results)
    return (folder / "report.html").read_text("utf-8")


def figures(html: str) -> dict[str, Any]:
    found = re.search(r"const figures = (.*);\n", html)
    assert found is not None
    return dict(json.loads(found[1]))


def test_the_page_needs_nothing_else_and_has_a_place_for_every_figure(
    tmp_path: Path, results: Results
) -> None:
    html = written(tmp_path / "new", results)
    assert not re.search(r"(src|href)=", html)
    drawn = figures(html)
    assert set(drawn) == {"bars0", "ecdf0", "tail0", "share0", "decisions"}
    for name in drawn:
        assert f'id="{name}"' in html
    assert "every client and setting 2 times" in html
    assert "20 ms late" in html


def test_the_published_rows_stand_beside_the_measured(tmp_path: Path, results: Results) -> None:
    html = written(tmp_path, results)
    for text in ("46.8 / 9.2 / 9.0", "19.2 / 23.6 / 23.3", "14.9 / 25.2 / 25.6", "10,992"):
        assert text in html
    assert "Java 4, adaptive linger 0</td><td>1.00</td><td>44.0</td>" in html
    assert "kafkaclient, kip794 adaptive linger 0</td><td>1.00</td><td>32.0</td>" in html
    assert "kafkaclient, default</td><td>1.00</td><td>9.0</td>" in html


def test_every_setting_has_its_row_with_ratios(tmp_path: Path, results: Results) -> None:
    html = written(tmp_path, results)
    (row,) = re.findall(r"<tr[^>]*><th scope=row>kafkaclient: default</th>(.*?)</tr>", html)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", row)
    assert cells[:6] == ["2,048", "9.0", "4.5", "18.0", "36.0", "45.0"]
    assert cells[9:15] == ["0.2 / 0.4 / 0.4", "0.25", "250", "0.30", "0.30", "1.25"]
    assert cells[15:] == ["0", "0", "0", "0"]


def test_what_is_missing_or_wrong_is_said(tmp_path: Path, results: Results) -> None:
    html = written(tmp_path, results)
    assert "verdict good" in html
    assert "Left out kafkaclient: sticky linger 0: no such &lt;partitioner&gt;" in html
    results.runs[0] = replace(results.runs[0], lost=3)
    results.complete = False
    html = written(tmp_path, results)
    assert "verdict bad" in html
    assert "ended before it was complete" in html
    assert '<td class="bad">3</td>' in html


def test_another_set_up_than_the_kips_is_said(tmp_path: Path, results: Results) -> None:
    assert "differs from" not in written(tmp_path, results)
    results.plan |= {"delay_ms": 50.0, "brokers": 5}
    html = written(tmp_path, results)
    assert "50 ms instead of 20, 5 brokers instead of 3." in html
    assert "One slow broker of 5" in html


def test_without_telemetry_the_page_says_why_there_are_no_decisions(
    tmp_path: Path, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Decisions:
        raise ConfigError("pip install 'kafkaclient[telemetry]'")

    monkeypatch.setattr(report, "read_decisions", refused)
    html = written(tmp_path, results)
    assert "kafkaclient[telemetry]" in html
    assert "decisions" not in figures(html)
    results.recorded.clear()
    assert "No run was recorded." in written(tmp_path, results)


def test_a_handful_of_settings_is_drawn_in_full(tmp_path: Path, results: Results) -> None:
    lines = figures(written(tmp_path, results))["tail0"]["data"]
    assert {line["name"]: line["line"]["dash"] for line in lines} == {
        "kafkaclient: default": "solid",
        "kafkaclient: kip794 adaptive linger 0": "solid",
        "java: adaptive linger 5": "dot",
        "java: adaptive linger 0": "dot",
    }
