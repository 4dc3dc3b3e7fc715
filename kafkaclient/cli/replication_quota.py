"""``kafkaclient experiment replication-quota``: do replicas move at the rate of their quota?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kafkaclient.cli.run import FAILED, stderr_console
from kafkaclient.cli.run_experiment import results_console, run_experiment
from kafkaclient.cli.watcher import Watcher
from kafkaclient.experiments.replication_quota.experiment import Experiment
from kafkaclient.experiments.replication_quota.plan import (
    SCENARIOS,
    Plan,
    parse_scenarios,
    parse_settings,
)
from kafkaclient.experiments.replication_quota.report import write_report
from kafkaclient.experiments.replication_quota.results import REPORT, SUMMARY
from kafkaclient.experiments.slow_broker.plan import check_extras

if TYPE_CHECKING:
    from kafkaclient.experiments.replication_quota.results import MoveResult, Results

__all__ = ["replication_quota"]

_NAMES = ", ".join(scenario.name.replace(" ", "-") for scenario in SCENARIOS)


Out = Annotated[Path, typer.Option(help="Folder for summary.json and report.html.")]


def replication_quota(
    *,
    out: Out,
    scenarios: Annotated[str, typer.Option(help=f"all, or of {_NAMES}, by commas.")] = "all",
    quota: Annotated[int, typer.Option(help="Bytes per second.")] = 10_000_000,
    seconds: Annotated[
        float, typer.Option(help="How long the quota lets a move take: what there is to move.")
    ] = 40.0,
    partitions: Annotated[int, typer.Option(help="Partitions that move.")] = 100,
    load: Annotated[
        float, typer.Option(help="Records per second in the runs with load; 0: no such runs.")
    ] = 2_000.0,
    record_size: Annotated[int, typer.Option(help="Bytes of each of these records.")] = 1_000,
    quiet_seconds: Annotated[
        float, typer.Option(help="How long latency is measured without a move.")
    ] = 15.0,
    broker_config: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the brokers, NAME=VALUE; may be given several times."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json on stdout instead of tables.")
    ] = False,
) -> None:
    """KIP-73's test plan: replicas move from one broker to another, to two, and from two to one.

    Starts its own brokers on this machine, two and then three, and moves a topic's replicas as
    `kafkaclient reassign` does, without load and with it: the rate beside what the quota dictates,
    the time beside the estimates, and what clients wait without a move, during it, and during the
    way back, which has no quota. Writes OUT/summary.json after every run, OUT/report.html at the
    end.

    Everything takes about nine minutes. The exit status is 1 when a run failed, a record of the
    clients did, or a throttle was left behind.

    Examples: `kafkaclient experiment replication-quota --out build/replication-quota`,
    `kafkaclient experiment replication-quota --out build/quick --scenarios one-to-one --load 0
    --seconds 20`, `kafkaclient experiment replication-quota --out build/backoff --scenarios
    one-to-two --broker-config replica.fetch.backoff.ms=100`
    """

    def begin() -> Experiment:
        check_extras()
        plan = Plan(
            scenarios=parse_scenarios(scenarios),
            quota=quota,
            seconds=seconds,
            partitions=partitions,
            load=load,
            record_size=record_size,
            quiet_s=quiet_seconds,
            broker_config=parse_settings(broker_config or ()),
        )
        return Experiment(plan, out, Watcher(stderr_console()))

    experiment = run_experiment(begin, lambda found: _show(out, found.results, as_json=as_json))
    if not experiment.results.is_clean:
        raise typer.Exit(FAILED)


def _show(out: Path, results: Results, *, as_json: bool) -> None:
    if not results.runs:
        return
    write_report(out, results)
    console = results_console(out / SUMMARY, as_json=as_json)
    if console is None:
        return
    console.print(_rates(results))
    console.print()
    if any(run.load for run in results.runs):
        console.print(_latencies(results))
        console.print()
    for name, reason in results.failed.items():
        console.print(f"{name}: {reason}", style="red", markup=False, soft_wrap=True)
    console.print(f"{out / REPORT}, {out / SUMMARY}", style="dim", soft_wrap=True)


def _rates(results: Results) -> Table:
    table = _table("Moves, MB/s and seconds", "scenario")
    for name in ("quota", "in", "rate", "share", "burst", "later", "took", "expected", "MoveTime"):
        table.add_column(name, justify="right", no_wrap=True)
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
        _number(run.steady_rate and run.steady_rate / 1e6, 2),
        f"{run.seconds:.1f}",
        _number(run.expected_s, 1),
        _number(run.move_time_s, 1),
    )


def _latencies(results: Results) -> Table:
    table = _table("What clients waited, p99 in ms", "scenario")
    for name in ("no move", "within the quota", "x", "without a quota", "x"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in results.runs:
        if run.quiet and run.throttled and run.unthrottled:
            table.add_row(
                run.name,
                _number(run.quiet.p99_ms, 1),
                _number(run.throttled.p99_ms, 1),
                _number(run.p99_ratio, 2),
                _number(run.unthrottled.p99_ms, 1),
                _number(run.unthrottled_ratio, 2),
            )
    return table


def _table(title: str, first: str) -> Table:
    table = Table(title=title, title_style="bold", title_justify="left", box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    return table


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"
