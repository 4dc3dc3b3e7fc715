"""The report in headless Chromium, as wide as a phone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape
from typing import TYPE_CHECKING

import pytest

from kafkaclient.spark.report.findings import findings
from kafkaclient.spark.report.job import Judgement
from kafkaclient.spark.report.page import write_report

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.spark.report.job import Tables
    from kafkaclient.spark.report.queries import TelemetryRun

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
WIDTH = 390

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed, so no page is opened"
)

# Chromium's windows are wider than a phone, so the page is in a frame. It sends what it found.
NOTICE_ERRORS = """<script>
const errors = [];
for (const kind of ["error", "warn"]) console[kind] = (...said) => errors.push(said.join(" "));
addEventListener("error", event => errors.push(event.message));
addEventListener("unhandledrejection", event => errors.push(String(event.reason)));
</script>"""
TELL = """<script>
addEventListener("load", () => setTimeout(() => parent.postMessage({
  errors,
  plots: [...document.querySelectorAll(".plot")].map(plot => ({
    id: plot.id,
    lines: plot.querySelectorAll(".trace, .bars .point").length,
    width: plot.getBoundingClientRect().width,
    drawn: Math.max(0, ...[...plot.querySelectorAll(".main-svg")].map(
      picture => picture.getBoundingClientRect().width)),
  })),
  width: document.documentElement.clientWidth,
  needed: document.documentElement.scrollWidth,
}, "*"), 1500));
</script>"""
FRAME = """<!DOCTYPE html><pre id="told"></pre>
<script>onmessage = event => told.textContent = JSON.stringify(event.data);</script>
<iframe style="width: {width}px; height: 844px; border: 0" srcdoc="{page}"></iframe>"""


def test_a_phone_shows_every_picture(
    runs: list[TelemetryRun], tables: Tables, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    write_report(path, findings(runs, tables), Judgement(), "kafkaclient, Spark")
    html = path.read_text("utf-8").replace("<head>", f"<head>{NOTICE_ERRORS}", 1)
    assert NOTICE_ERRORS in html
    frame = tmp_path / "frame.html"
    page = escape(html.replace("</body>", f"{TELL}</body>"))
    frame.write_text(FRAME.format(width=WIDTH, page=page), "utf-8")
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000"]
    command.append(frame.as_uri())
    shown = subprocess.run(command, check=False, capture_output=True, text=True, timeout=90)
    found = re.search(r'<pre id="told">(.+?)</pre>', shown.stdout)
    assert found is not None, shown.stderr
    told = json.loads(unescape(found[1]))
    assert told["errors"] == []
    assert {plot["id"] for plot in told["plots"]} == {"ecdf", "tail", "parts", "sent"}
    assert all(plot["lines"] and 0 < plot["drawn"] <= WIDTH for plot in told["plots"]), told
    assert told["width"] == told["needed"] <= WIDTH, "it scrolls to the side"
