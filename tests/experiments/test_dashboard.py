"""The pictures of the dashboard and of ``top``, from a short run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from experiments.dashboard.pictures import draw_dashboard
from kafkaclient.prometheus import DASHBOARD

if TYPE_CHECKING:
    from pathlib import Path


def test_the_pictures_show_every_panel_and_broker(tmp_path: Path) -> None:
    dashboard, top = draw_dashboard(tmp_path, seconds=15)
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    shown = _words(dashboard)
    assert {panel["title"] for panel in panels} <= shown
    assert {"broker 0", "broker 1", "broker 2"} <= shown
    text = " ".join(_words(top)).replace("\xa0", " ")
    assert "in flight" in text
    assert "shop" in text
    assert "@font-face" not in top.read_text("utf-8")  # nothing is fetched to show it


def _words(svg: Path) -> set[str]:
    return {"".join(text.itertext()) for text in ElementTree.parse(svg).iter(_TEXT)}  # noqa: S314


_TEXT = "{http://www.w3.org/2000/svg}text"
