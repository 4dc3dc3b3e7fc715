"""The pictures of the report on telemetry that no other report has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.pages.figures import Column, broker_color, panels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkaclient.pages.figures import Figure
    from kafkaclient.spark.report.findings import Findings

__all__ = ["parts", "sent"]

_PARTS = {"deciding": "#a46ede", "waiting": "#e8743b", "broker": "#3b82f6"}
_SKEW_COLOR = "#7a8699"
_MB = 1024.0 * 1024.0


def parts(found: Sequence[Findings]) -> Figure:
    """The parts of the average latency: a bar for each run."""
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "name": part,
                "x": [run.part(part).get("avg_ms") for run in found],
                "y": [run.run for run in found],
                "marker": {"color": color},
                "hovertemplate": "%{x:.2f} ms",
            }
            for part, color in _PARTS.items()
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
    """Bytes and records per second to each broker, and the skew of brokers: a row for each run."""
    return panels(
        [Column(title, matched=True) for title in ("MB/s", "records/s", "skew")],
        [
            (
                run.run,
                (
                    _lines(run.series, "bytes", _MB),
                    _lines(run.series, "records", 1.0),
                    _skew(run.series),
                ),
            )
            for run in found
        ],
    )


def _lines(series: Sequence[dict[str, Any]], name: str, unit: float) -> Iterator[dict[str, Any]]:
    for broker in sorted({bin_["broker"] for bin_ in series}):
        bins = [bin_ for bin_ in series if bin_["broker"] == broker]
        width = bins[0]["bin_s"]
        values = {bin_["bin"]: bin_[name] / width / unit for bin_ in bins}
        places = range(max(values) + 1)
        yield {
            "name": f"broker {broker}",
            "legendgroup": str(broker),
            "x": [round((place + 0.5) * width, 2) for place in places],
            "y": [round(values.get(place, 0.0), 3) for place in places],
            "line": {"color": broker_color(broker), "width": 1.6},
            "hovertemplate": "%{y:,.2f}",
        }


def _skew(series: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The skew of brokers in each bin with records, among the brokers that the run sent to."""
    brokers = len({bin_["broker"] for bin_ in series})
    within: dict[int, list[int]] = {}
    for bin_ in series:
        within.setdefault(bin_["bin"], []).append(bin_["bytes"])
    points = [(place, sent) for place, sent in sorted(within.items()) if sum(sent)]
    if points:
        yield {
            "name": "skew",
            "x": [round((place + 0.5) * series[0]["bin_s"], 2) for place, _ in points],
            "y": [round(max(sent) * brokers / sum(sent), 3) for _, sent in points],
            "line": {"color": _SKEW_COLOR, "width": 1.6},
            "hovertemplate": "%{y:.2f}",
        }
