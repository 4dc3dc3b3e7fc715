"""The pictures of the report on telemetry, beside those it shares with the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.experiments.figures import broker_colour, row_title

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkaclient.experiments.facts.results import Findings
    from kafkaclient.experiments.figures import Figure

__all__ = ["parts", "sent"]

_PARTS = {"deciding": "#a46ede", "waiting": "#e8743b", "broker": "#3b82f6"}
_COLUMNS = 3
_SKEW_COLOUR = "#7a8699"
_MB = 1024.0 * 1024.0


def parts(found: Sequence[Findings]) -> Figure:
    """What the average latency is made of, a bar per run."""
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "name": part,
                "x": [run.part(part).get("avg_ms") for run in found],
                "y": [run.run for run in found],
                "marker": {"color": colour},
                "hovertemplate": "%{x:.2f} ms",
            }
            for part, colour in _PARTS.items()
        ],
        "layout": {
            "barmode": "stack",
            "bargap": 0.35,
            "legend": {"traceorder": "normal"},
            "xaxis": {"title": {"text": "ms on average"}},
            "yaxis": {"autorange": "reversed", "ticksuffix": "  "},
        },
    }


def sent(found: Sequence[Findings]) -> Figure:
    """Bytes and records per second to each broker, and the skew of brokers: a row per run."""
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "grid": {"rows": len(found), "columns": 3, "pattern": "independent"},
        "annotations": [],
        "hovermode": "x",
        "legend": {"y": 1 + 0.1 / len(found)},  # above the first row's heading, however many
    }
    for row, run in enumerate(found):
        columns = {
            "MB/s": _lines(run.series, "bytes", _MB),
            "records/s": _lines(run.series, "records", 1.0),
            "skew": _skew(run.series),
        }
        for column, (title, lines) in enumerate(columns.items()):
            place = len(columns) * row + column + 1
            suffix = "" if place == 1 else str(place)
            data += [{**line, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"} for line in lines]
            layout[f"xaxis{suffix}"] = {
                "title": {"text": "seconds" if row == len(found) - 1 else ""}
            }
            layout[f"yaxis{suffix}"] = {
                "title": {"text": title, "standoff": 6},
                "rangemode": "tozero",
                **({"matches": f"y{column + 1 if column else ''}"} if row else {}),
            }
        layout["annotations"].append(row_title(run.run, row, len(columns)))
    named: set[str] = set()
    for line in data:
        line["showlegend"] = line["name"].startswith("broker") and line["name"] not in named
        named.add(line["name"])
    return {"data": data, "layout": layout}


def _lines(series: Sequence[dict[str, Any]], name: str, unit: float) -> Iterator[dict[str, Any]]:
    for broker in sorted({bin_["broker"] for bin_ in series}):
        bins = [bin_ for bin_ in series if bin_["broker"] == broker]
        width = bins[0]["bin_s"]
        values = {bin_["bin"]: bin_[name] / width / unit for bin_ in bins}
        places = range(max(values) + 1)
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": f"broker {broker}",
            "legendgroup": str(broker),
            "x": [round((place + 0.5) * width, 2) for place in places],
            "y": [round(values.get(place, 0.0), 3) for place in places],
            "line": {"color": broker_colour(broker), "width": 1.6},
            "hovertemplate": "%{y:,.2f}",
        }


def _skew(series: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Where anything was sent; among the brokers that the run sent anything to."""
    brokers = len({bin_["broker"] for bin_ in series})
    within: dict[int, list[int]] = {}
    for bin_ in series:
        within.setdefault(bin_["bin"], []).append(bin_["bytes"])
    points = [(place, sent) for place, sent in sorted(within.items()) if sum(sent)]
    if points:
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": "skew",
            "x": [round((place + 0.5) * series[0]["bin_s"], 2) for place, _ in points],
            "y": [round(max(sent) * brokers / sum(sent), 3) for _, sent in points],
            "line": {"color": _SKEW_COLOUR, "width": 1.6},
            "hovertemplate": "%{y:.2f}",
        }
