"""The results of a campaign as one HTML file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from experiments.chaos.schedule import NODE_KINDS, FaultKind
from experiments.experiment import REPORT
from experiments.machine import machine_sentence
from kafkaclient.pages import LATENCY_TICKS, cell, filled, number, row, verdict, write_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from experiments.chaos.fault_runner import Struck
    from experiments.chaos.results import ClientResult, Results
    from kafkaclient.pages import Figure

__all__ = ["timeline", "write_report"]

_COUNTS = ("sent", "acked", "lost", "duplicated", "reordered", "failed", "unresolved")
_COLORS = {"unkeyed": "#e8743b", "keyed": "#3b82f6", "explicit": "#14a38b"}
_AWAY = {
    FaultKind.KILL: "#b3261e",
    FaultKind.TERMINATE: "#c9a227",
    FaultKind.PAUSE: "#8d99ae",
    FaultKind.OUTAGE: "#b3261e",
}


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder."""
    drawn = [found for found in results.clients if found.latencies.timeline]
    write_page(
        folder / REPORT,
        title="chaos",
        body=filled(
            "experiments.chaos",
            "report.html",
            lead=_lead(results),
            verdict=_verdict(results),
            counts="\n".join(map(_counts, results.clients)),
            latencies="\n".join(line for found in results.clients for line in _latencies(found)),
            timelines="\n".join(
                f'<h3>{escape(found.client)}</h3><div id="time{place}" class="plot"></div>'
                for place, found in enumerate(drawn)
            ),
            faults="\n".join(map(_fault, results.struck)),
        ),
        figures={
            f"time{place}": timeline(found, results.struck) for place, found in enumerate(drawn)
        },
        machine=machine_sentence(results.machine),
    )


def timeline(found: ClientResult, struck: Sequence[Struck]) -> Figure:
    """A client's p99 over time, in front of the faults."""
    latencies = found.latencies
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": kind,
                "x": [round((place + 0.5) * latencies.bin_s, 2) for place in range(len(values))],
                "y": values,
                "line": {"color": _COLORS[kind], "width": 1.6},
                "hovertemplate": "%{y:,.0f} ms",
            }
            for kind, values in latencies.timeline.items()
        ],
        "layout": {
            "hovermode": "x",
            "xaxis": {"title": {"text": "seconds"}},
            "yaxis": {
                "title": {"text": "p99, ms"},
                "type": "log",
                "tickvals": LATENCY_TICKS,
                "ticktext": [f"{tick:,}" for tick in LATENCY_TICKS],
            },
            "shapes": [shape for hit in struck for shape in _shapes(hit)],
        },
    }


def _shapes(hit: Struck) -> Iterator[dict[str, Any]]:
    if hit.began is None:
        return
    whole = {"yref": "paper", "y0": 0, "y1": 1, "x0": hit.began, "layer": "below"}
    color = _AWAY.get(hit.fault.kind)
    if color is None:
        line = {"dash": "dot", "width": 1, "color": "#8d99ae80"}
        yield {**whole, "type": "line", "x1": hit.began, "line": line}
    else:
        yield {
            **whole,
            "type": "rect",
            "x1": hit.ended,
            "fillcolor": color,
            "opacity": 0.16,
            "line": {"width": 0},
        }


def _lead(results: Results) -> str:
    plan = results.plan
    away = sum(hit.fault.kind in NODE_KINDS and hit.began is not None for hit in results.struck)
    return (
        f"{plan['rate']:,g} records of {plan['record_size']} bytes a second from each client for "
        f"{plan['seconds']:g} s ({', '.join(plan['kinds'])}), by {plan['producers']} producers to "
        f"{plan['brokers']} real Kafka brokers; topics of {plan['partitions']} partitions with "
        f"three replicas, two of which must be in sync. {len(results.struck)} faults from seed "
        f"{plan['seed']}, {away} of which took a broker away. An independent "
        "consumer looked for every record."
    )


def _verdict(results: Results) -> str:
    ours = results.ours
    if ours is not None and ours.is_clean:
        return verdict(
            f"Each of our {ours.verdict.acked:,} records was acknowledged, and is in the log "
            "once, in order, at the offset of its acknowledgement.",
            good=True,
        )
    return verdict("Not every record of ours arrived once and in order.")


def _counts(found: ClientResult) -> str:
    values = found.verdict.as_json()
    cells = [
        cell(f"{values[name]:,}", "bad" if values[name] and name not in ("sent", "acked") else "")
        for name in _COUNTS
    ]
    return row(found.client, cells)


def _latencies(found: ClientResult) -> Iterator[str]:
    for kind, figures in found.latencies.ms.items():
        cells = (cell(number(value, 1)) for value in figures.values())
        yield row(f"{found.client}, {kind}", cells)


def _fault(hit: Struck) -> str:
    fault = hit.fault
    where = f", broker {fault.broker}" if fault.broker >= 0 else ""
    times = [number(time, 1) for time in (fault.at, fault.seconds or None, hit.began, hit.ended)]
    return (
        f"<tr>{cell(f'{fault.kind}{where}', 'text')}{''.join(map(cell, times))}"
        f"{cell(escape(hit.note), 'text')}</tr>"
    )
