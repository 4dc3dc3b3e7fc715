"""The experiment's pictures for the report, beside those it shares with the demonstration."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, Any

from kafkaclient.experiments.figures import (
    LATENCY_TICKS,
    Curve,
    broker_colour,
    broker_name,
    row_title,
)
from kafkaclient.experiments.slow_broker.compare import curve_points
from kafkaclient.experiments.slow_broker.settings import BASELINE, JAVA, OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.experiments.figures import Figure
    from kafkaclient.experiments.slow_broker.compare import Row
    from kafkaclient.experiments.slow_broker.decisions import Decisions, Series
    from kafkaclient.experiments.slow_broker.results import Results

__all__ = ["CLIENT_COLOURS", "DECISION_COLUMNS", "curves", "decision_plots", "latency_bars"]

CLIENT_COLOURS = {
    OURS: "#e8743b",
    JAVA: "#3b82f6",
    "aiokafka": "#14a38b",
    "confluent": "#a46ede",
}

DECISION_COLUMNS = (
    ("queued batches", "queued"),
    ("requests in flight", "in_flight"),
    ("window", "window"),
    ("share of bytes", "share"),
)
"""Title and :class:`Series` attribute of each column of the decisions' picture."""

_DRAWN = (
    (OURS, "default", "#e8743b"),
    (OURS, "linger 0", "#f2a65a"),
    (OURS, "kip794 adaptive linger 5", "#d1495b"),
    (BASELINE.client, BASELINE.name, "#3b82f6"),
    (JAVA, "adaptive linger 0", "#8ab4f8"),
    ("aiokafka", "random linger 0", "#14a38b"),
    ("confluent", "sticky 10 ms linger 10", "#a46ede"),
)

_MORE_COLOURS = ("#8d99ae", "#c9a227", "#5f9ea0", "#b56576", "#6a994e", "#9d4edd", "#7f5539")


def curves(results: Results, rows: Sequence[Row]) -> list[Curve]:
    """The distributions of the settings that tell most; every setting's when only a few ran."""
    by_name = {(row.client, row.setting): row for row in rows}
    drawn = [(by_name[c, s], colour) for c, s, colour in _DRAWN if (c, s) in by_name]
    if len(rows) <= len(_DRAWN):
        more = [row for row in rows if row not in {found for found, _colour in drawn}]
        drawn += list(zip(more, _MORE_COLOURS, strict=False))
    return [
        Curve(row.label, colour, curve_points(results, row), sketched=row.client == JAVA)
        for row, colour in drawn
    ]


def latency_bars(rows: Sequence[Row]) -> Figure:
    """Average and p99 of every setting, on logarithmic axes side by side."""
    names = [row.label for row in rows]
    colours = [CLIENT_COLOURS.get(row.client, "#8d99ae") for row in rows]
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "showlegend": False,
        "bargap": 0.3,
        "grid": {"rows": 1, "columns": 2, "pattern": "coupled"},
        "yaxis": {"autorange": "reversed", "ticksuffix": "  ", "dtick": 1},
    }
    for suffix, title, values in (
        ("", "average, ms", [row.avg_ms for row in rows]),
        ("2", "p99, ms", [row.p99_ms for row in rows]),
    ):
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "x": values,
                "y": names,
                "xaxis": f"x{suffix}",
                "text": ["" if value is None else f"{value:,.1f}" for value in values],
                "textposition": "auto",
                "cliponaxis": False,
                "marker": {"color": colours},
                "hovertemplate": f"%{{y}}: %{{x:.1f}} ms<extra>{title}</extra>",
            }
        )
        layout[f"xaxis{suffix}"] = {
            "title": {"text": title},
            "type": "log",
            # Bars of a logarithm need a common start; the lowest latencies are above 0.5 ms.
            "range": [log10(0.5), log10(2 * max((v for v in values if v), default=1.0))],
            "tickvals": LATENCY_TICKS,
            "ticktext": [f"{tick:,}" for tick in LATENCY_TICKS],
        }
    return {"data": data, "layout": layout}


def decision_plots(runs: Sequence[Decisions]) -> Figure:
    """Queue, in flight, window and share per broker over time: a row per run."""
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "grid": {"rows": len(runs), "columns": len(DECISION_COLUMNS), "pattern": "independent"},
        "annotations": [],
        "hovermode": "x",
        "legend": {"y": 1.0 + 0.1 / max(len(runs), 1)},
    }
    for row, run in enumerate(runs):
        for column, (title, attribute) in enumerate(DECISION_COLUMNS):
            cell = row * len(DECISION_COLUMNS) + column + 1
            suffix = "" if cell == 1 else str(cell)
            data += [
                _trace(run, broker, series, attribute, suffix)
                for broker, series in run.brokers.items()
            ]
            layout[f"xaxis{suffix}"] = {"title": {"text": "seconds" if run is runs[-1] else ""}}
            layout[f"yaxis{suffix}"] = {
                "title": {"text": title, "standoff": 6},
                "rangemode": "tozero",
                **({"range": [0, 1]} if attribute == "share" else {}),
            }
        layout["annotations"].append(row_title(run.name, row, len(DECISION_COLUMNS)))
    return {"data": data, "layout": layout}


def _trace(
    run: Decisions, broker: int, series: Series, attribute: str, suffix: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": broker_name(broker),
        "legendgroup": broker_name(broker),
        "showlegend": not suffix,
        "x": run.seconds,
        "y": getattr(series, attribute),
        "connectgaps": False,
        "xaxis": f"x{suffix}",
        "yaxis": f"y{suffix}",
        "line": {"color": broker_colour(broker), "width": 1.6},
        "hovertemplate": "%{y:.2f}",
    }
