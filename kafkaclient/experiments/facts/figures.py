"""The pictures of the report on telemetry, beside those it shares with the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.experiments.figures import broker_colour, row_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.experiments.facts.results import Findings
    from kafkaclient.experiments.figures import Figure

__all__ = ["parts", "sent"]

_PARTS = {"deciding": "#a46ede", "waiting": "#e8743b", "broker": "#3b82f6"}
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
    """Bytes and records per second to each broker: a row per run."""
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "grid": {"rows": len(found), "columns": 2, "pattern": "independent"},
        "annotations": [],
        "hovermode": "x",
        "legend": {"y": 1.035},
    }
    named: set[int] = set()
    for row, run in enumerate(found):
        for column, (title, name, unit) in enumerate(
            (("MB/s", "bytes", _MB), ("records/s", "records", 1.0))
        ):
            place = 2 * row + column + 1
            suffix = "" if place == 1 else str(place)
            for broker in sorted({bin_["broker"] for bin_ in run.series}):
                bins = [bin_ for bin_ in run.series if bin_["broker"] == broker]
                data.append(_line(bins, name, unit, broker, suffix, broker not in named))
                named.add(broker)
            layout[f"xaxis{suffix}"] = {
                "title": {"text": "seconds" if row == len(found) - 1 else ""}
            }
            layout[f"yaxis{suffix}"] = {
                "title": {"text": title, "standoff": 6},
                "rangemode": "tozero",
                **({"matches": f"y{column + 1 if column else ''}"} if row else {}),
            }
        layout["annotations"].append(row_title(run.run, row, 2))
    return {"data": data, "layout": layout}


def _line(
    bins: Sequence[dict[str, Any]], name: str, unit: float, broker: int, suffix: str, first: bool
) -> dict[str, Any]:
    width = bins[0]["bin_s"]
    values = {bin_["bin"]: bin_[name] / width / unit for bin_ in bins}
    places = range(max(values) + 1)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"broker {broker}",
        "legendgroup": str(broker),
        "showlegend": first,
        "x": [round((place + 0.5) * width, 2) for place in places],
        "y": [round(values.get(place, 0.0), 3) for place in places],
        "xaxis": f"x{suffix}",
        "yaxis": f"y{suffix}",
        "line": {"color": broker_colour(broker), "width": 1.6},
        "hovertemplate": "%{y:,.2f}",
    }
