"""Pictures about one slow broker among others, which is broker 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.pages import broker_color

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.pages import Figure, Trace
    from kafkaclient.perf.latency import Distribution

__all__ = ["broker_line", "broker_name", "broker_share", "points"]

_PERCENTILES = tuple(
    sorted(
        {float(share) for share in range(1, 100)}
        | {round(100 * (1 - 10 ** -(step / 25)), 4) for step in range(101)}
    )
)
"""Every percent, and 25 steps for each nine."""


def points(distribution: Distribution) -> list[tuple[float, float]]:
    """(percentile, ms) of a distribution, as a curve needs them; empty without records."""
    return [
        (share, distribution.percentile_ms(share) or 0.0)
        for share in _PERCENTILES
        if distribution.count
    ]


def broker_share(sent: Sequence[tuple[str, Sequence[int]]]) -> Figure:
    """Each broker's share of the bytes; ``sent``: (name of a run, its bytes by broker)."""
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
                "marker": {"color": broker_color(broker)},
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


def broker_name(broker: int) -> str:
    """The broker's name in a legend; broker 0 is the slow one."""
    return f"broker {broker}" + (" (late)" if broker == 0 else "")


def broker_line(broker: int, seconds: Sequence[float], values: Sequence[float | None]) -> Trace:
    """A broker's line over time in :func:`~kafkaclient.pages.panels`."""
    return {
        "name": broker_name(broker),
        "legendgroup": broker_name(broker),
        "x": seconds,
        "y": values,
        "connectgaps": False,
        "line": {"color": broker_color(broker), "width": 1.6},
        "hovertemplate": "%{y:.2f}",
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
