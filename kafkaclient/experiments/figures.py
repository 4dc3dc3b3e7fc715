"""The report's pictures: plotly figures as plain ``data`` and ``layout``.

Colours of text, grid and background are the page's, by the reader's light or dark setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkaclient.experiments.demo import DemoRun
    from kafkaclient.experiments.sampler import Samples
    from kafkaclient.experiments.traffic import BrokerTraffic

__all__ = [
    "LATENCY_TICKS",
    "TAIL_TICKS",
    "Curve",
    "Figure",
    "broker_colour",
    "broker_name",
    "broker_share",
    "gauges",
    "latency_ecdf",
    "latency_tail",
    "nines",
    "row_title",
    "run_colour",
]

Figure: TypeAlias = dict[str, Any]

_RUN_COLOURS = ("#e8743b", "#3b82f6", "#14a38b", "#a46ede")
_SLOW_COLOUR = "#e8743b"
_FAST_COLOURS = ("#3b82f6", "#14a38b", "#a46ede", "#8d99ae")

_BIN_S = 0.5
TAIL_TICKS = (0.0, 90.0, 99.0, 99.9, 99.99)
LATENCY_TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000]


@dataclass(frozen=True, slots=True)
class Curve:
    """A run's latency distribution as (percentile, ms), rising; ``sketched`` when only a few
    percentiles are known."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]
    sketched: bool = False


def latency_ecdf(curves: Sequence[Curve]) -> Figure:
    """The share of the records acknowledged within a time; the time on a logarithmic axis."""
    return {
        "data": [
            _line(
                curve,
                x=[_drawable(ms) for share, ms in curve.points if share > 0],
                y=[share for share, _ms in curve.points if share > 0],
                hovertemplate="%{y:.2f} % within %{x:.1f} ms",
            )
            for curve in curves
        ],
        "layout": {
            "xaxis": _latency_axis(),
            "yaxis": {"title": {"text": "records acknowledged, %"}, "range": [0, 101]},
            "hovermode": "closest",
            "showlegend": False,
        },
    }


def latency_tail(curves: Sequence[Curve]) -> Figure:
    """The latency by percentile, the percentiles spread so that the tail is seen."""
    return {
        "data": [
            _line(
                curve,
                x=[nines(share) for share, _ms in curve.points if share < 100],
                y=[_drawable(ms) for share, ms in curve.points if share < 100],
                customdata=[share for share, _ms in curve.points if share < 100],
                hovertemplate="p%{customdata:.4~g}: %{y:.1f} ms",
            )
            for curve in curves
        ],
        "layout": {
            "xaxis": {
                "title": {"text": "percentile"},
                "tickvals": [nines(tick) for tick in TAIL_TICKS],
                "ticktext": [f"{tick:g}" for tick in TAIL_TICKS],
                "range": [0, 4],
            },
            "yaxis": _latency_axis(),
            "hovermode": "closest",
            "showlegend": False,
        },
    }


def nines(share: float) -> float:
    """Where a percentile stands when each further nine gets the same room: 90 at 1, 99 at 2."""
    return round(-log10(1 - share / 100), 4)


def broker_share(sent: Sequence[tuple[str, Sequence[int]]]) -> Figure:
    """Each broker's part of the bytes of every run: (the run's name, bytes per broker)."""
    brokers = range(max((len(per_broker) for _name, per_broker in sent), default=0))
    bars = []
    for broker in brokers:
        shares = [100 * run[broker] / sum(run) if sum(run) else 0 for _name, run in sent]
        bars.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": broker_name(broker),
                "x": shares,
                "y": [name for name, _run in sent],
                "text": [f"{share:.0f} %" for share in shares],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textfont": {"color": "#ffffff"},
                "customdata": [run[broker] / 1e6 for _name, run in sent],
                "hovertemplate": "%{customdata:.1f} MB, %{x:.1f} %<extra>%{fullData.name}</extra>",
                "marker": {"color": broker_colour(broker)},
            }
        )
    return {
        "data": bars,
        "layout": {
            "barmode": "stack",
            "legend": {"traceorder": "normal"},
            "bargap": 0.35,
            "xaxis": {"title": {"text": "share of the bytes, %"}, "range": [0, 100]},
            "yaxis": {"autorange": "reversed", "ticksuffix": "  "},
            "shapes": [_fair_share_line(place, len(brokers)) for place in range(1, len(brokers))],
        },
    }


def gauges(runs: Sequence[DemoRun]) -> Figure:
    """Bytes, queue and requests in flight per broker over time: a row per run, a column each."""
    columns: tuple[tuple[str, Callable[[Samples, int], list[float]]], ...] = (
        ("sent, MB/s", _sent_rate),
        ("queued, KB", _queued),
        ("requests in flight", _in_flight),
    )
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "grid": {"rows": len(runs), "columns": len(columns), "pattern": "independent"},
        "annotations": [],
        "hovermode": "x",
        "legend": {"y": 1.035},
    }
    for row, run in enumerate(runs):
        for column, (title, series) in enumerate(columns):
            cell = row * len(columns) + column + 1
            suffix = "" if cell == 1 else str(cell)
            for broker in _broker_ids(run.samples):
                values = series(run.samples, broker)
                data.append(
                    {
                        "type": "scatter",
                        "mode": "lines",
                        "name": broker_name(broker),
                        "legendgroup": broker_name(broker),
                        "showlegend": cell == 1,
                        "x": [round((i + 0.5) * _BIN_S, 2) for i in range(len(values))],
                        "y": [round(value, 3) for value in values],
                        "xaxis": f"x{suffix}",
                        "yaxis": f"y{suffix}",
                        "line": {"color": broker_colour(broker), "width": 1.6},
                        "hovertemplate": "%{y:.2f}",
                    }
                )
            layout[f"xaxis{suffix}"] = {
                "title": {"text": "seconds" if row == len(runs) - 1 else ""},
            }
            layout[f"yaxis{suffix}"] = {
                "title": {"text": title, "standoff": 6},
                "rangemode": "tozero",
                # One scale per column, to compare at a glance; but queues differ too much.
                **({"matches": f"y{column + 1 if column else ''}"} if row and column != 1 else {}),
            }
        layout["annotations"].append(row_title(run.setting.name, row, len(columns)))
    return {"data": data, "layout": layout}


def run_colour(place: int) -> str:
    """The colour of the run at this place in every picture."""
    return _RUN_COLOURS[place % len(_RUN_COLOURS)]


def broker_name(broker: int) -> str:
    """As a legend names it; broker 0 is the slow one."""
    return f"broker {broker}" + (" (late)" if broker == 0 else "")


def broker_colour(broker: int) -> str:
    """The same in every picture."""
    return _SLOW_COLOUR if broker == 0 else _FAST_COLOURS[(broker - 1) % len(_FAST_COLOURS)]


def _line(curve: Curve, **trace: Any) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if curve.sketched else "lines",
        "name": curve.name,
        "line": {
            "color": curve.colour,
            "width": 1.4 if curve.sketched else 2.2,
            "dash": "dot" if curve.sketched else "solid",
        },
        **trace,
    }


def _drawable(milliseconds: float) -> float:
    return max(milliseconds, 0.001)  # there is no zero on a logarithmic axis


def _latency_axis() -> dict[str, Any]:
    return {
        "title": {"text": "latency, ms"},
        "type": "log",
        "tickvals": LATENCY_TICKS,
        "ticktext": [f"{tick:,}" for tick in LATENCY_TICKS],
    }


def _fair_share_line(place: int, brokers: int) -> dict[str, Any]:
    x = 100 * place / brokers
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"dash": "dot", "width": 1.5, "color": "#ffffff"},
    }


def row_title(text: str, row: int, columns: int) -> dict[str, Any]:
    """A heading over the first cell of a row of a grid with so many columns."""
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


def _broker_ids(samples: Samples) -> list[int]:
    return [broker.node_id for broker in samples.traffic[-1].brokers] if samples.traffic else []


def _sent_rate(samples: Samples, broker: int) -> list[float]:
    rates: list[float] = []
    last = 0.0
    for group in _bins(samples, broker):
        # An empty bin keeps the line going; the bytes count in the next.
        now = float(group[-1].bytes_sent) if group else last
        rates.append((now - last) / _BIN_S / 1e6)
        last = now
    return rates


def _queued(samples: Samples, broker: int) -> list[float]:
    return [_mean([b.queued_bytes or 0 for b in group]) / 1e3 for group in _bins(samples, broker)]


def _in_flight(samples: Samples, broker: int) -> list[float]:
    return [_mean([b.in_flight_requests or 0 for b in group]) for group in _bins(samples, broker)]


def _bins(samples: Samples, broker: int) -> Iterator[list[BrokerTraffic]]:
    bins: dict[int, list[BrokerTraffic]] = {}
    for seconds, traffic in zip(samples.seconds, samples.traffic, strict=True):
        group = bins.setdefault(int(seconds / _BIN_S), [])
        group.extend(found for found in traffic.brokers if found.node_id == broker)
    for number in range(max(bins, default=-1) + 1):
        yield bins.get(number, [])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
