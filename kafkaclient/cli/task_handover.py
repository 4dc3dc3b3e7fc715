"""``kafkaclient experiment task-handover``: how long tasks stand still when they move."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from kafkaclient.cli.run import FAILED, stderr_console
from kafkaclient.cli.run_experiment import results_console, run_experiment
from kafkaclient.cli.watcher import Watcher
from kafkaclient.experiments.slow_broker.plan import check_extras
from kafkaclient.experiments.task_handover.experiment import Experiment
from kafkaclient.experiments.task_handover.plan import (
    KIP441,
    MODES,
    RESTORE_FIRST,
    Plan,
    check_streams,
    parse_modes,
)
from kafkaclient.experiments.task_handover.report import write_report
from kafkaclient.experiments.task_handover.results import REPORT, SUMMARY, Results

__all__ = ["task_handover"]


Out = Annotated[Path, typer.Option(help="Folder for summary.json and report.html.")]
PeerPython = Annotated[
    Path | None,
    typer.Option(help="Python of an environment with quixstreams; default: this one."),
]


def task_handover(  # noqa: PLR0913 - one for each fact of the experiment
    *,
    out: Out,
    modes: Annotated[
        str, typer.Option(help=f"What to measure: {', '.join(MODES)}, joined by commas.")
    ] = f"{KIP441},{RESTORE_FIRST}",
    keys: Annotated[int, typer.Option(help="Keys in the state before it begins.")] = 5_500_000,
    value_size: Annotated[int, typer.Option(help="Bytes of a key's value.")] = 200,
    tasks: Annotated[int, typer.Option(help="Tasks, which are partitions.")] = 6,
    rate: Annotated[float, typer.Option(help="Records per second.")] = 600.0,
    brokers: Annotated[int, typer.Option(help="How many brokers.")] = 1,
    acceptable_recovery_lag: Annotated[
        int, typer.Option(help="acceptable.recovery.lag: less for a small state.")
    ] = 1_000,
    settle: Annotated[
        float, typer.Option(help="Seconds that a step goes on after all is balanced.")
    ] = 3.0,
    peer_python: PeerPython = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json on stdout instead of a table.")
    ] = False,
) -> None:
    """KIP-441's experiment: instances join, crash and restart; how long does a task stand still?

    Starts its own broker on this machine and writes a state that takes a while to restore. Then
    one instance starts, a second and a third join, one is killed, one is restarted, while records
    are counted exactly once: with KIP-441 (`kip441`), and with tasks assigned at once and restored
    first (`restore-first`). `quixstreams` does the same steps if it is installed somewhere. Another
    client's consumer reads all counts.

    With the defaults a mode takes three to six minutes. The exit status is 1 when a mode failed or
    a count is wrong.

    Examples: `kafkaclient experiment task-handover --out build/handover`,
    `kafkaclient experiment task-handover --out build/quick --keys 20000 --acceptable-recovery-lag
    500`,
    `kafkaclient experiment task-handover --out build/peers --modes kip441,quixstreams
    --peer-python ~/quix/bin/python`
    """

    def begin() -> Experiment:
        check_extras()
        check_streams()
        plan = Plan(
            modes=parse_modes(modes),
            keys=keys,
            value_size=value_size,
            tasks=tasks,
            rate=rate,
            brokers=brokers,
            acceptable_recovery_lag=acceptable_recovery_lag,
            settle_s=settle,
            peer_python=peer_python,
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
    table = Table(box=None, pad_edge=False)
    table.add_column("mode", no_wrap=True)
    table.add_column("step", no_wrap=True)
    for heading in ("longest gap s", "balanced s", "MB followed", "MB restored", "counts"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in results.runs:
        table.add_row(
            run.mode,
            run.step,
            f"{run.longest_gap_s:.2f}",
            f"{run.time_to_balance_s:.1f}",
            *(
                "" if size is None else f"{size / 1e6:,.0f}"
                for size in (run.warmup_bytes, run.restored_bytes)
            ),
            "exact" if run.counts_exact else "[bold red]wrong[/]",
        )
    console.print(table)
    console.print(f"{out / REPORT}, {out / SUMMARY}", style="dim", soft_wrap=True)
