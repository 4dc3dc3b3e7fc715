"""The slow-broker experiment's own pictures for the report."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, Any

from experiments.clients import FRANZ, JAVA, OURS
from experiments.figures import broker_line
from experiments.slow_broker.compare import curve_points
from experiments.slow_broker.settings import BASELINE
from kafkaclient.pages import LATENCY_TICKS, Column, Curve, panels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.slow_broker.compare import Row
    from experiments.slow_broker.decisions import Decisions
    from experiments.slow_broker.results import Results
    from kafkaclient.pages import Figure

__all__ = ["CLIENT_COLORS", "DECISION_COLUMNS", "curves", "decision_plots", "latency_bars"]

CLIENT_COLORS = {
    OURS: "#e8743b",
    JAVA: "#3b82f6",
    FRANZ: "#00add8",
    "aiokafka": "#14a38b",
    "confluent": "#a46ede",
}

DECISION_COLUMNS = (
    ("queued batches", "queued"),
    ("requests in flight", "in_flight"),
    ("window", "window"),
    ("share of bytes", "share"),
)
"""Title of each column of :func:`decision_plots`, and its attribute of Series."""

_DRAWN = (
    (OURS, "default", "#e8743b"),
    (OURS, "linger 0", "#f2a65a"),
    (OURS, "kip794 adaptive linger 5", "#d1495b"),
    (BASELINE.client, BASELINE.name, "#3b82f6"),
    (JAVA, "adaptive linger 0", "#8ab4f8"),
    ("aiokafka", "random linger 0", "#14a38b"),
    ("confluent", "sticky 10 ms linger 10", "#a46ede"),
)

_MORE_COLORS = ("#8d99ae", "#c9a227", "#5f9ea0", "#b56576", "#6a994e", "#9d4edd", "#7f5539")


def curves(results: Results, rows: Sequence[Row]) -> list[Curve]:
    """The distributions of a few settings: of all settings if no more than seven ran."""
    by_name = {(row.client, row.setting): row for row in rows}
    drawn = [(by_name[c, s], color) for c, s, color in _DRAWN if (c, s) in by_name]
    if len(rows) <= len(_DRAWN):
        more = [row for row in rows if row not in {found for found, _color in drawn}]
        drawn += list(zip(more, _MORE_COLORS, strict=False))
    return [
        Curve(row.label, color, curve_points(results, row), sketched=row.client in {JAVA, FRANZ})
        for row, color in drawn
    ]


def latency_bars(rows: Sequence[Row]) -> Figure:
    """Average and p99 of every setting, side by side on logarithmic axes."""
    names = [row.label for row in rows]
    colors = [CLIENT_COLORS.get(row.client, "#8d99ae") for row in rows]
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
                "marker": {"color": colors},
                "hovertemplate": f"%{{y}}: %{{x:.1f}} ms<extra>{title}</extra>",
            }
        )
        layout[f"xaxis{suffix}"] = {
            "title": {"text": title},
            "type": "log",
            # Bars on a logarithmic axis need a common start; no latency is below 0.5 ms.
            "range": [log10(0.5), log10(2 * max((v for v in values if v), default=1.0))],
            "tickvals": LATENCY_TICKS,
            "ticktext": [f"{tick:,}" for tick in LATENCY_TICKS],
        }
    return {"data": data, "layout": layout}


def decision_plots(runs: Sequence[Decisions]) -> Figure:
    """Queue, requests in flight, window and share of each broker over time: a row for each run."""
    return panels(
        [Column(title, top=1 if name == "share" else None) for title, name in DECISION_COLUMNS],
        [
            (
                run.name,
                [
                    [
                        broker_line(broker, run.seconds, getattr(series, name))
                        for broker, series in run.brokers.items()
                    ]
                    for _title, name in DECISION_COLUMNS
                ],
            )
            for run in runs
        ],
    )
