"""Draws the dashboard's panels from scrapes, and the view of ``kafkaclient top``, as SVG files.

Grafana draws the same expressions in its own way: the picture is a rendering, not a photograph.
"""

from __future__ import annotations

import io
import json
import re
from importlib import import_module
from math import ceil
from typing import TYPE_CHECKING, Any

from rich.console import Console

from experiments.dashboard.promql import parse
from experiments.dashboard.scrapes import SECONDS, SLOW_S, STOPPED_S, scraped
from experiments.slow_broker.pictures import STYLE
from kafkaclient.prometheus import DASHBOARD

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.dashboard.promql import Page
    from kafkaclient.cli.live_view import LiveView

__all__ = ["draw_dashboard"]

_COLUMNS = 3
_MINUTE_S = 60.0
_TOP_COLUMNS = 116
_COLORS = ("#3b82c4", "#d9822b", "#2f9e6e", "#b5548f", "#8a7a2f", "#7a6fd0", "#c0564b", "#4aa6a6")
_UNITS = {
    "s": ("ms", 1e3),
    "percentunit": ("%", 100.0),
    "decbytes": ("KB", 1e-3),
    "Bps": ("KB/s", 1e-3),
    "cps": ("per second", 1.0),
    "short": ("", 1.0),
}
"""Grafana's units: the label of the axis, and what values are multiplied by."""


def draw_dashboard(folder: Path, seconds: int = SECONDS) -> list[Path]:
    """Write ``dashboard.svg`` and ``top.svg`` of a run of ``seconds`` to ``folder``; returns their
    paths. Raises ModuleNotFoundError without matplotlib."""
    folder.mkdir(parents=True, exist_ok=True)
    run = scraped(seconds)
    dashboard, top = folder / "dashboard.svg", folder / "top.svg"
    matplotlib = import_module("matplotlib")
    matplotlib.use("svg")
    with matplotlib.rc_context(STYLE):
        figure = _dashboard(json.loads(DASHBOARD.read_text("utf-8")), run.pages)
        figure.savefig(dashboard, metadata={"Date": None})
    top.write_text(_terminal(run.top), "utf-8")
    return [dashboard, top]


def _dashboard(dashboard: Mapping[str, Any], pages: list[tuple[float, Page]]) -> Any:
    panels = dashboard["panels"]
    rows = ceil(len(panels) / _COLUMNS)
    figure = import_module("matplotlib.figure").Figure(
        figsize=(4.2 * _COLUMNS, 2.3 * rows), layout="constrained"
    )
    for place, panel in enumerate(panels, 1):
        axis = figure.add_subplot(rows, _COLUMNS, place)
        _panel(axis, panel, pages)
        if place > len(panels) - _COLUMNS:
            axis.set_xlabel("minutes")
    return figure


def _panel(axis: Any, panel: Mapping[str, Any], pages: list[tuple[float, Page]]) -> None:
    label, scale = _UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    lines: dict[str, list[tuple[float, float]]] = {}
    for target in panel["targets"]:
        query = parse(target["expr"])
        for last in range(1, len(pages) + 1):
            at = pages[last - 1][0]
            series = query.evaluate(pages[max(last - 40, 0) : last])
            assert not isinstance(series, float)
            for labels, value in series.items():
                name = _legend(target["legendFormat"], dict(labels))
                lines.setdefault(name, []).append((at / _MINUTE_S, value * scale))
    for place, name in enumerate(sorted(lines)):
        minutes, values = zip(*lines[name], strict=True)
        alone = len(minutes) == 1
        axis.plot(
            minutes,
            values,
            color=_COLORS[place % len(_COLORS)],
            linewidth=1.1,
            marker="." if alone else "",
            label=name,
        )
    axis.set_title(panel["title"])
    axis.set_ylabel(label)
    axis.set_ylim(bottom=0)
    axis.set_xlim(0, pages[-1][0] / _MINUTE_S)
    for begin, end in (SLOW_S, STOPPED_S):
        axis.axvspan(begin / _MINUTE_S, end / _MINUTE_S, color="#7a8490", alpha=0.12, linewidth=0)
    if lines:
        axis.legend(fontsize=6.5, frameon=False, loc="upper right", handlelength=1.2)


def _legend(template: str, labels: Mapping[str, str]) -> str:
    name = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template)
    return name.removeprefix("shop").strip() or "shop"  # the run has one producer only


def _terminal(view: LiveView) -> str:
    with_output = Console(record=True, width=_TOP_COLUMNS, file=io.StringIO(), force_terminal=True)
    with_output.print(view)
    svg = with_output.export_svg(title="kafkaclient top localhost:9000", unique_id="top")
    # No font from elsewhere: each viewer has one of a fixed width.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
