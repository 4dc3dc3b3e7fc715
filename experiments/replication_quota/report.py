"""The results of the experiment as one HTML file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from experiments.experiment import REPORT
from experiments.machine import machine_sentence
from kafkaclient.pages import cell, filled, number, row, verdict, write_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from experiments.replication_quota.results import Latency, MoveResult, Results
    from kafkaclient.pages import Figure

__all__ = ["arrival", "waiting", "write_report"]

WITHIN = 0.15
"""How far the rate of a move may be from the dictated rate, as a share of it."""
ESTIMATED_WITHIN = 0.20
P99_WITHIN = 1.5

_DONE, _QUOTA, _SOFT = "#e8743b", "#8d99ae", "#3b82f6"


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder."""
    loaded = [run for run in results.runs if run.load]
    write_page(
        folder / REPORT,
        title="replicas moved within a quota",
        body=filled(
            "experiments.replication_quota",
            "report.html",
            lead=_lead(results),
            verdict=_verdict(results),
            rates="\n".join(map(_rate_row, results.runs)),
            latencies="\n".join(line for run in loaded for line in _latency_rows(run)),
            plots="\n".join(_plots(place, run) for place, run in enumerate(results.runs)),
            failed="".join(verdict(": ".join(entry)) for entry in results.failed.items()),
        ),
        figures={
            **{f"move{place}": arrival(run) for place, run in enumerate(results.runs)},
            **{
                f"wait{place}": waiting(run)
                for place, run in enumerate(results.runs)
                if run.throttled is not None
            },
        },
        machine=machine_sentence(results.machine),
    )


def arrival(run: MoveResult) -> Figure:
    """The bytes that arrived over time, beside those that the quota allows; and the rate."""
    seconds = run.seconds
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": "arrived, MB",
                "x": [at for at, _done in run.samples],
                "y": [round(done / 1e6, 2) for _at, done in run.samples],
                "line": {"color": _DONE, "width": 2},
            },
            {
                "type": "scatter",
                "mode": "lines",
                "name": "quota x time, MB",
                "x": [0, round(seconds, 2)],
                "y": [0, round(run.quota * seconds / 1e6, 2)],
                "line": {"color": _QUOTA, "width": 1.5, "dash": "dot"},
            },
            {
                "type": "scatter",
                "mode": "lines",
                "name": "MB/s",
                "x": [round(at, 2) for at, _rate in run.rates()],
                "y": [round(rate / 1e6, 2) for _at, rate in run.rates()],
                "line": {"color": _SOFT, "width": 1, "shape": "hvh"},
                "yaxis": "y2",
            },
        ],
        "layout": {
            "hovermode": "x",
            "xaxis": {"title": {"text": "seconds"}},
            "yaxis": {"title": {"text": "MB"}, "rangemode": "tozero"},
            "yaxis2": {
                "title": {"text": "MB/s"},
                "overlaying": "y",
                "side": "right",
                "rangemode": "tozero",
                "showgrid": False,
            },
        },
    }


def waiting(run: MoveResult) -> Figure:
    """The latency of clients in each second without a move, of the move, and of the move back."""
    phases = (
        ("no move", run.quiet, _QUOTA),
        ("within the quota", run.throttled, _DONE),
        ("without a quota", run.unthrottled, _SOFT),
    )
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{name}, {what}",
                "x": [round(window[0], 1) for window in found.windows],
                "y": [round(window[place], 2) for window in found.windows],
                "line": {"color": color, "width": 1.6, "dash": dash},
            }
            for name, found, color in phases
            if found is not None
            for place, what, dash in ((1, "average", "solid"), (2, "maximum", "dot"))
        ],
        "layout": {
            "hovermode": "x",
            "xaxis": {"title": {"text": "seconds"}},
            "yaxis": {"title": {"text": "latency, ms"}, "type": "log"},
        },
    }


def _lead(results: Results) -> str:
    plan = results.plan
    load = (
        f" With load, clients send {plan['load']:,g} records of {plan['record_size']:,} bytes a "
        "second to the topic that moves."
        if plan["load"]
        else ""
    )
    return (
        f"The scenarios of KIP-73's test plan: a topic of {plan['partitions']} partitions, "
        f"{plan['quota'] * plan['seconds'] / 1e6:,.0f} MB that move at "
        f"{plan['quota'] / 1e6:g} MB/s a broker.{load} One to one has one replica (on two brokers "
        "two of them leave nothing to move), the others two. Rates refer to the bytes on the "
        "disks when the move began."
    )


def _verdict(results: Results) -> str:
    wrong = [
        f"{run.name}: rate {run.share:.0%} of what is dictated"
        for run in results.runs
        if abs(run.share - 1) > WITHIN
    ]
    wrong += [
        f"{run.name}: estimate {run.error:+.0%}"
        for run in results.runs
        if run.error is None or abs(run.error) > ESTIMATED_WITHIN
    ]
    wrong += [
        f"{run.name}: clients' p99 {run.p99_ratio:.2f} x"
        for run in results.runs
        if run.p99_ratio is not None and run.p99_ratio > P99_WITHIN
    ]
    wrong += [f"{run.name}: a throttle was left behind" for run in results.runs if run.left]
    if not wrong:
        return verdict(
            "Every move was within 15 % of the rate that its quota dictates and within 20 % of its "
            "estimate, clients within 1.5 times their p99, and no throttle was left behind.",
            good=True,
        )
    return verdict("; ".join(wrong))


def _rate_row(run: MoveResult) -> str:
    cells = [
        cell(f"{run.bytes_to_move / 1e6:,.0f}"),
        cell(f"{run.dictated / 1e6:.2f}"),
        cell(f"{run.rate / 1e6:.2f}"),
        cell(f"{run.share:.0%}", "" if abs(run.share - 1) <= WITHIN else "bad"),
        cell(f"{run.burst_s:.1f}"),
        cell(number(run.steady_rate and run.steady_rate / 1e6, 2)),
        cell(f"{run.seconds:.1f}"),
        cell(number(run.expected_s, 1)),
        cell("" if run.error is None else f"{run.error:+.0%}"),
        cell(number(run.move_time_s, 1)),
        cell("yes" if run.left else "no", "bad" if run.left else ""),
    ]
    return row(run.name, cells)


def _latency_rows(run: MoveResult) -> Iterator[str]:
    for name, found, ratio in (
        ("no move", run.quiet, None),
        ("within the quota", run.throttled, run.p99_ratio),
        ("without a quota", run.unthrottled, run.unthrottled_ratio),
    ):
        if found is not None:
            yield _latency_row(f"{run.name}: {name}", found, ratio)


def _latency_row(name: str, found: Latency, ratio: float | None) -> str:
    cells = [
        cell(f"{found.records:,}"),
        cell(f"{found.failed:,}", "bad" if found.failed else ""),
        *(cell(number(value, 1)) for value in (found.p50_ms, found.p99_ms, found.max_ms)),
        cell(number(ratio, 2)),
    ]
    return row(name, cells)


def _plots(place: int, run: MoveResult) -> str:
    plots = [f'<div id="move{place}" class="plot"></div>']
    if run.throttled is not None:
        plots.append(f'<div id="wait{place}" class="plot"></div>')
    return f'<h3>{escape(run.name)}</h3><div class="pair">{"".join(plots)}</div>'
