"""An HTML page without other files: text, tables, and plotly's figures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from math import log10
from string import Template
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.errors import ConfigError
from kafkaclient.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


# --- An HTML page that needs no other file and no network: text, tables ---------------------------


def write_page(
    path: Path, *, title: str, body: str, figures: Mapping[str, Figure], machine: str
) -> None:
    """Write the page; creates its folder if it is missing.

    ``body`` is HTML. Each name in ``figures`` is the id of an element in ``body``.
    """
    page = filled(
        "kafkaclient.pages",
        "page.html",
        title=escape(title),
        body=body,
        machine=escape(machine),
        # "</" would end the script element that the JSON stands in.
        figures=json.dumps(figures, separators=(",", ":")).replace("</", "<\\/"),
        plotly=_plotly_js(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)


def filled(package: str, template: str, **fields: str) -> str:
    """The text of a package's template, with its ``$fields`` replaced by HTML."""
    text = files(package).joinpath(template).read_text("utf-8")
    return Template(text).substitute(fields)


def row(name: str, cells: Iterable[str], css_class: str = "") -> str:
    """A row of a table; ``name`` is plain text, each of ``cells`` comes from :func:`cell`."""
    attribute = f' class="{css_class}"' if css_class else ""
    return f"<tr{attribute}><th scope=row>{escape(name)}</th>{''.join(cells)}</tr>"


def cell(text: str, css_class: str = "") -> str:
    """A cell of a table; ``text`` is HTML."""
    return f'<td class="{css_class}">{text}</td>' if css_class else f"<td>{text}</td>"


def number(value: float | None, decimals: int) -> str:
    """The value with separated thousands; empty for None."""
    return "" if value is None else f"{value:,.{decimals}f}"


def verdict(text: str, *, good: bool = False) -> str:
    """A paragraph that says whether all went well; ``text`` is plain text."""
    return f'<p class="verdict {"good" if good else "bad"}">{escape(text)}</p>'


def legend(curves: Iterable[Curve]) -> str:
    """The curves' names, each behind a stroke of its color."""
    return "".join(
        f'<span><i style="background:{curve.color}"></i>{escape(curve.name)}</span>'
        for curve in curves
    )


def check_plotly() -> None:
    """Raise ConfigError if plotly is not installed: before hours of work for a page."""
    if find_spec("plotly") is None:
        raise ConfigError(
            "the pictures of an HTML report are drawn by plotly, which is not installed: "
            "pip install 'kafkaclient[report]'"
        )


def _plotly_js() -> str:
    check_plotly()
    script: str = import_module("plotly.offline").get_plotlyjs()
    return script


# --- Pictures for a page: plotly figures as plain ``data`` and ``layout`` -------------------------
# The page sets the colors of text, grid and background, for the reader's light or dark setting.

Figure: TypeAlias = dict[str, Any]
"""``data`` and ``layout`` for ``Plotly.react``."""
Trace: TypeAlias = dict[str, Any]
"""One entry of a figure's ``data``."""

_RUN_COLORS = ("#e8743b", "#3b82f6", "#14a38b", "#a46ede")
_SLOW_COLOR = "#e8743b"
_FAST_COLORS = ("#3b82f6", "#14a38b", "#a46ede", "#8d99ae")

TAIL_TICKS = (0.0, 90.0, 99.0, 99.9, 99.99)
LATENCY_TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000]


@dataclass(frozen=True, slots=True)
class Curve:
    """A run's latency distribution as (percentile, ms), rising; ``sketched`` when only a few
    percentiles are known."""

    name: str
    color: str
    points: Sequence[tuple[float, float]]
    sketched: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of :func:`panels`."""

    title: str
    matched: bool = False
    """Whether all rows share the scale of the first."""
    top: float | None = None
    """Where the scale ends; None: at the highest value."""


def latency_ecdf(curves: Sequence[Curve]) -> Figure:
    """The share of the records acknowledged within a time; the time is on a logarithmic axis."""
    data = []
    for curve in curves:
        shares, times = _points(curve, lambda share: share > 0)
        data.append(_line(curve, x=times, y=shares, hovertemplate="%{y:.2f} % within %{x:.1f} ms"))
    yaxis = {"title": {"text": "records acknowledged, %"}, "range": [0, 101]}
    return _latency_figure(data, xaxis=_latency_axis(), yaxis=yaxis)


def latency_tail(curves: Sequence[Curve]) -> Figure:
    """The latency by percentile, with more room for the percentiles of the tail."""
    data = []
    for curve in curves:
        shares, times = _points(curve, lambda share: share < 100)
        places = [nines(share) for share in shares]
        template = "p%{customdata:.4~g}: %{y:.1f} ms"
        data.append(_line(curve, x=places, y=times, customdata=shares, hovertemplate=template))
    xaxis = {
        "title": {"text": "percentile"},
        "tickvals": [nines(tick) for tick in TAIL_TICKS],
        "ticktext": [f"{tick:g}" for tick in TAIL_TICKS],
        "range": [0, 4],
    }
    return _latency_figure(data, xaxis=xaxis, yaxis=_latency_axis())


def _points(curve: Curve, drawn: Callable[[float], bool]) -> tuple[list[float], list[float]]:
    """The percentiles and the times of a curve; no time is zero, for a logarithmic axis."""
    points = [(share, max(ms, 0.001)) for share, ms in curve.points if drawn(share)]
    return [share for share, _ms in points], [ms for _share, ms in points]


def _latency_figure(data: list[Trace], **axes: dict[str, Any]) -> Figure:
    return {"data": data, "layout": {**axes, "hovermode": "closest", "showlegend": False}}


def nines(share: float) -> float:
    """Where a percentile stands when each further nine gets the same room: 90 at 1, 99 at 2."""
    return round(-log10(1 - share / 100), 4)


def panels(
    columns: Sequence[Column], rows: Sequence[tuple[str, Sequence[Iterable[Trace]]]]
) -> Figure:
    """A grid of lines over seconds: for each row its heading, and the lines of each column.

    The legend names each ``legendgroup`` once.
    """
    data: list[Trace] = []
    layout: dict[str, Any] = {
        "grid": {"rows": len(rows), "columns": len(columns), "pattern": "independent"},
        "annotations": [],
        "hovermode": "x",
        "legend": {"y": 1 + 0.1 / max(len(rows), 1)},  # above the heading of the first row
    }
    named: set[str] = set()
    for row, (heading, cells) in enumerate(rows):
        for place, (column, lines) in enumerate(zip(columns, cells, strict=True)):
            number = row * len(columns) + place + 1
            suffix = "" if number == 1 else str(number)
            for line in lines:
                group = line.get("legendgroup")
                shown = group is not None and group not in named
                axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showlegend": shown}
                data.append({"type": "scatter", "mode": "lines", **line, **axes})
                named.add(group or "")
            layout[f"xaxis{suffix}"] = {
                "title": {"text": "seconds" if row == len(rows) - 1 else ""}
            }
            layout[f"yaxis{suffix}"] = {
                "title": {"text": column.title, "standoff": 6},
                "rangemode": "tozero",
                **({"range": [0, column.top]} if column.top else {}),
                **({"matches": f"y{place + 1 if place else ''}"} if row and column.matched else {}),
            }
        layout["annotations"].append(_heading(heading, row, len(columns)))
    return {"data": data, "layout": layout}


def run_color(place: int) -> str:
    """The color of the run at this place, the same in every picture."""
    return _RUN_COLORS[place % len(_RUN_COLORS)]


def broker_color(broker: int) -> str:
    """The color of a broker, the same in every picture; broker 0 may be the slow one."""
    return _SLOW_COLOR if broker == 0 else _FAST_COLORS[(broker - 1) % len(_FAST_COLORS)]


def _line(curve: Curve, **trace: Any) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if curve.sketched else "lines",
        "name": curve.name,
        "line": {
            "color": curve.color,
            "width": 1.4 if curve.sketched else 2.2,
            "dash": "dot" if curve.sketched else "solid",
        },
        **trace,
    }


def _latency_axis() -> dict[str, Any]:
    return {
        "title": {"text": "latency, ms"},
        "type": "log",
        "tickvals": LATENCY_TICKS,
        "ticktext": [f"{tick:,}" for tick in LATENCY_TICKS],
    }


def _heading(text: str, row: int, columns: int) -> dict[str, Any]:
    """The heading above the first cell of a row."""
    suffix = "" if row == 0 else str(row * columns + 1)
    return {
        "text": f"<b>{text}</b>",
        "xref": f"x{suffix} domain",
        "yref": f"y{suffix} domain",
        "x": 0,
        "y": 1,
        "yanchor": "bottom",
        "xanchor": "left",
        "yshift": 4,
        "showarrow": False,
    }
