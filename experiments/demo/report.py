"""The demonstration's results as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.demo.figures import gauges
from experiments.figures import broker_share, points
from experiments.machine import machine_facts, machine_sentence
from kafkaclient.pages import (
    Curve,
    cell,
    filled,
    latency_ecdf,
    latency_tail,
    legend,
    row,
    verdict,
    write_page,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.demo.experiment import DemoPlan, DemoRun

__all__ = ["write_report"]

_COLORS = ("#e8743b", "#3b82f6", "#14a38b", "#a46ede", "#d1495b", "#8d99ae")


def write_report(path: Path, plan: DemoPlan, runs: Sequence[DemoRun]) -> None:
    """Write the report to ``path``; its folder is made when it is missing."""
    curves = [
        Curve(
            run.setting.name,
            _COLORS[place % len(_COLORS)],
            points(run.run.outcome.summary.distribution),
        )
        for place, run in enumerate(runs)
    ]
    write_page(
        path,
        title="one slow broker of three",
        body=filled(
            "experiments.demo",
            "report.html",
            lead=_lead(plan, runs),
            verdict=_verdict(runs),
            table=_table(runs),
            legend=legend(curves),
        ),
        figures={
            "ecdf": latency_ecdf(curves),
            "tail": latency_tail(curves),
            "share": broker_share(
                [(run.setting.name, run.record.bytes_per_broker or ()) for run in runs]
            ),
            "gauges": gauges(runs),
        },
        machine=machine_sentence(machine_facts()),
    )


def _lead(plan: DemoPlan, runs: Sequence[DemoRun]) -> str:
    records = max((run.record.records for run in runs), default=0)
    return (
        f"{records:,} flights that left New York City in 2013, as JSON, {plan.rate:,.0f} a second, "
        f"into {plan.partitions} partitions on three real Kafka brokers. Broker 0 answers each "
        f"Produce request {plan.delay_ms:g} ms late, one after the other; the others answer at "
        f"once. The runs differ in how the producer chooses partitions.{_stalled(runs)}"
    )


def _stalled(runs: Sequence[DemoRun]) -> str:
    stalls = [run.stall.seconds for run in runs if run.stall is not None]
    if not stalls:
        return ""
    return (
        f" In the last ones, at half the rate, broker 0 takes nothing for {stalls[0]:g} s, and the "
        "rows for it fill the client's memory, which has the same bound for each client. The "
        "column with an arrow has the rows per second to the other brokers, before the stall and "
        "during it."
    )


def _verdict(runs: Sequence[DemoRun]) -> str:
    if all(run.read_back.is_exact for run in runs):
        return verdict(
            "An independent consumer read every row of every run back exactly once, in order.",
            good=True,
        )
    return verdict("Rows were lost, duplicated or reordered; see the table.")


def _table(runs: Sequence[DemoRun]) -> str:
    lowest = {
        name: min((_number(run, name) for run in runs), default=0.0)
        for name in ("avg_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms")
    }
    return "\n".join(_row(run, lowest) for run in runs)


def _row(run: DemoRun, lowest: dict[str, float]) -> str:
    record = run.record
    cells = [cell(f"{record.records_per_s:,.0f}")]
    for name, least in lowest.items():
        value = _number(run, name)
        cells.append(cell(f"{value:,.1f}", "best" if value <= least else ""))
    cells.append(cell(" / ".join(f"{sent / 1e6:.1f}" for sent in record.bytes_per_broker or ())))
    others = "" if run.to_others is None else "{:,.0f} → {:,.0f}".format(*run.to_others)
    cells.append(cell(others))
    cells.append(cell(f"{sum(record.requests_per_broker or ()):,}"))
    found = run.read_back
    cells += [
        cell(f"{count:,}", "bad" if count else "")
        for count in (found.lost, found.duplicated, found.reordered)
    ]
    return row(record.setting, cells)


def _number(run: DemoRun, name: str) -> float:
    value: float | None = getattr(run.record, name)
    return value or 0.0
