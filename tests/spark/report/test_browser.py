"""The report in headless Chromium, as wide as a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.spark.report.findings import findings
from kafkaclient.spark.report.job import Judgement
from kafkaclient.spark.report.page import write_report
from tests.browser import look_at, needs_chromium

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.spark.report.job import Tables
    from kafkaclient.spark.report.queries import TelemetryRun

WIDTH = 390
LOOK = """() => ({plots: [...document.querySelectorAll(".plot")].map(plot => ({
  id: plot.id,
  lines: plot.querySelectorAll(".trace, .bars .point").length,
  width: plot.getBoundingClientRect().width,
  drawn: Math.max(0, ...[...plot.querySelectorAll(".main-svg")].map(
    picture => picture.getBoundingClientRect().width)),
}))})"""

pytestmark = needs_chromium


def test_a_phone_shows_every_picture(
    runs: list[TelemetryRun], tables: Tables, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    write_report(path, findings(runs, tables), Judgement(), "kafkaclient, Spark")
    told = look_at([path], WIDTH, LOOK, tmp_path)["report.html"]
    assert told["errors"] == []
    assert {plot["id"] for plot in told["plots"]} == {"ecdf", "tail", "parts", "sent"}
    assert all(plot["lines"] and 0 < plot["drawn"] <= WIDTH for plot in told["plots"]), told
    assert told["width"] == told["needed"] <= WIDTH, "it scrolls to the side"
