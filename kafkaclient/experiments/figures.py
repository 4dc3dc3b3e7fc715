"""The report's pictures: plotly figures as plain ``data`` and ``layout``.

Colours of text, grid and background are the page's, by the reader's light or dark setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkaclient.experiments.demo import DemoRun
    from kafkaclient.experiments.latency import Distribution
    from kafkaclient.experiments.sampler import Samples
    from kafkaclient.experiments.traffic import BrokerTraffic

__all__ = ["Figure", "broker_share", "gauges", "latency_ecdf", "latency_tail", "run_colour"]

Figure: TypeAlias = dict[str, Any]

_RUN_COLOURS = ("#e8743b", "#3b82f6", "#14a38b", "#a46ede")
_SLOW_COLOUR = "#e8743b"
_FAST_COLOURS = ("#3b82f6", "#14a38b", "#a46ede", "#8d99ae")

_BIN_S = 0.5
_TAIL_TICKS = (0.0, 90.0, 99.0, 99.9, 99.99)
_LATENCY_TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000]


def latency_ecdf(runs: Sequence[DemoRun]) -> Figure:
    """The share of the rows acknowledged within a time; the time on a logarithmic axis."""
    shares = [share / 2 for share in range(1, 200)] + [99.75, 99.9, 99.95, 99.99]
    return {
        "data": [
            _line(
                run,
                place,
                x=_percentiles(run, shares),
                y=shares,
                hovertemplate="%{y:.2f} % within %{x:.1f} ms",
            )
            for place, run in enumerate(runs)
        ],
        "layout": {
            "xaxis": _latency_axis(),
            "yaxis": {"title": {"text": "rows acknowledged, %"}, "range": [0, 101]},
            "hovermode": "closest",
            "showlegend": False,
        },
    }


def latency_tail(runs: Sequence[DemoRun]) -> Figure:
    """The latency by percentile, the percentiles spread so that the tail is seen."""
    nines = [step / 50 for step in range(201)]
    shares = [100 * (1 - 10**-nine) for nine in nines]
    return {
        "data": [
            _line(
                run,
                place,
                x=nines,
                y=_percentiles(run, shares),
                customdata=shares,
                hovertemplate="p%{customdata:.4~g}: %{y:.1f} ms",
            )
            for place, run in enumerate(runs)
        ],
        "layout": {
            "xaxis": {
                "title": {"text": "percentile"},
                "tickvals": list(range(len(_TAIL_TICKS))),
                "ticktext": [f"{tick:g}" for tick in _TAIL_TICKS],
                "range": [0, 4],
            },
            "yaxis": _latency_axis(),
            "hovermode": "closest",
            "showlegend": False,
        },
    }


def broker_share(runs: Sequence[DemoRun]) -> Figure:
    """Each broker's part of the bytes of every run."""
    names = [run.setting.name for run in runs]
    sent = [run.record.bytes_per_broker or () for run in runs]
    brokers = range(max(map(len, sent), default=0))
    bars = []
    for broker in brokers:
        shares = [100 * run[broker] / sum(run) if sum(run) else 0 for run in sent]
        bars.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": _broker_name(broker),
                "x": shares,
                "y": names,
                "text": [f"{share:.0f} %" for share in shares],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textfont": {"color": "#ffffff"},
                "customdata": [run[broker] / 1e6 for run in sent],
                "hovertemplate": "%{customdata:.1f} MB, %{x:.1f} %<extra>%{fullData.name}</extra>",
                "marker": {"color": _broker_colour(broker)},
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
                        "name": _broker_name(broker),
                        "legendgroup": _broker_name(broker),
                        "showlegend": cell == 1,
                        "x": [round((i + 0.5) * _BIN_S, 2) for i in range(len(values))],
                        "y": [round(value, 3) for value in values],
                        "xaxis": f"x{suffix}",
                        "yaxis": f"y{suffix}",
                        "line": {"color": _broker_colour(broker), "width": 1.6},
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
        layout["annotations"].append(_row_title(run.setting.name, row))
    return {"data": data, "layout": layout}


def run_colour(place: int) -> str:
    """The colour of the run at this place in every picture."""
    return _RUN_COLOURS[place % len(_RUN_COLOURS)]


def _broker_name(broker: int) -> str:
    return f"broker {broker}" + (" (late)" if broker == 0 else "")


def _broker_colour(broker: int) -> str:
    return _SLOW_COLOUR if broker == 0 else _FAST_COLOURS[(broker - 1) % len(_FAST_COLOURS)]


def _line(run: DemoRun, place: int, **trace: Any) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": run.setting.name,
        "line": {"color": run_colour(place), "width": 2.2},
        **trace,
    }


def _percentiles(run: DemoRun, shares: Sequence[float]) -> list[float]:
    distribution: Distribution = run.run.outcome.summary.distribution
    return [distribution.percentile_ms(share) or 0.001 for share in shares]


def _latency_axis() -> dict[str, Any]:
    return {
        "title": {"text": "latency, ms"},
        "type": "log",
        "tickvals": _LATENCY_TICKS,
        "ticktext": [f"{tick:,}" for tick in _LATENCY_TICKS],
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


def _row_title(text: str, row: int) -> dict[str, Any]:
    suffix = "" if row == 0 else str(row * 3 + 1)
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
