"""``python -m experiments replication-quota``: do replicas move at the rate of their quota?"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.command import (
    AsJson,
    Out,
    new_table,
    of_plan,
    print_files,
    print_problems,
    run_experiment,
)
from experiments.replication_quota.experiment import Experiment
from experiments.replication_quota.plan import Plan
from experiments.replication_quota.report import write_report
from kafkaclient.cli.profile_file import pairs
from kafkaclient.pages import number

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from experiments.replication_quota.results import MoveResult, Results

__all__ = ["replication_quota"]


@of_plan(Plan)
def replication_quota(
    *,
    out: Out,
    plan: Callable[..., Plan],
    broker_config: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the brokers, NAME=VALUE; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """KIP-73's test plan: replicas move from one broker to another, to two, and from two to one.

    Starts its own brokers on this machine, two and then three. Moves a topic's replicas as
    `kafkaclient reassign` does, without load and with load. Shows the rate beside the quota, the
    time beside the estimates, and the latency of clients without a move, during the move, and
    during the move back, which has no quota. Writes OUT/summary.json after every run and
    OUT/report.html at the end.

    The defaults take about nine minutes. The exit status is 1 if a run or a client's record failed,
    or if a throttle was left behind.

    Examples: `python -m experiments replication-quota --out build/replication-quota`,
    `python -m experiments replication-quota --out build/quick --scenarios one-to-one --load 0
    --seconds 20`, `python -m experiments replication-quota --out build/backoff --scenarios
    one-to-two --broker-config replica.fetch.backoff.ms=100`
    """

    run_experiment(
        lambda: plan(broker_config=pairs(broker_config, "--broker-config", strip=True)),
        Experiment,
        write_report,
        _show,
        out,
        as_json=as_json,
    )


def _show(console: Console, out: Path, results: Results) -> None:
    console.print(_rates(results))
    console.print()
    if any(run.load for run in results.runs):
        console.print(_latencies(results))
        console.print()
    print_problems(console, (f"{name}: {reason}" for name, reason in results.failed.items()))
    print_files(console, out)


def _rates(results: Results) -> Table:
    table = new_table(
        "Moves, MB/s and seconds",
        ["scenario"],
        ("quota", "in", "rate", "share", "burst", "later", "took", "expected", "MoveTime"),
    )
    for run in results.runs:
        table.add_row(run.name, *_rate_cells(run))
    return table


def _rate_cells(run: MoveResult) -> tuple[str, ...]:
    return (
        f"{run.quota / 1e6:.1f}",
        f"{run.inbound / 1e6:.1f}",
        f"{run.rate / 1e6:.2f}",
        f"{run.share:.0%}",
        f"{run.burst_s:.1f}",
        number(run.steady_rate and run.steady_rate / 1e6, 2),
        f"{run.seconds:.1f}",
        number(run.expected_s, 1),
        number(run.move_time_s, 1),
    )


def _latencies(results: Results) -> Table:
    table = new_table(
        "Latency of clients, p99 in ms",
        ["scenario"],
        ("no move", "within the quota", "x", "without a quota", "x"),
    )
    for run in results.runs:
        if run.quiet and run.throttled and run.unthrottled:
            table.add_row(
                run.name,
                number(run.quiet.p99_ms, 1),
                number(run.throttled.p99_ms, 1),
                number(run.p99_ratio, 2),
                number(run.unthrottled.p99_ms, 1),
                number(run.unthrottled_ratio, 2),
            )
    return table
