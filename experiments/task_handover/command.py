"""``python -m experiments task-handover``: how long tasks stand still when they move."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from experiments.command import AsJson, Out, new_table, print_files, run_experiment
from experiments.task_handover.experiment import Experiment
from experiments.task_handover.plan import (
    KIP441,
    MODES,
    RESTORE_FIRST,
    Plan,
    check_streams,
    parse_modes,
)
from experiments.task_handover.report import write_report

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.task_handover.results import Results

__all__ = ["task_handover"]

PeerPython = Annotated[
    Path | None,
    typer.Option(help="Python of an environment with quixstreams; default: this Python."),
]


def task_handover(  # noqa: PLR0913 - an option for each field of the plan
    *,
    out: Out,
    modes: Annotated[
        str, typer.Option(help=f"What to measure: {', '.join(MODES)}, joined by commas.")
    ] = f"{KIP441},{RESTORE_FIRST}",
    keys: Annotated[
        int, typer.Option(help="Keys in the state when the first instance starts.")
    ] = 5_500_000,
    value_size: Annotated[
        int, typer.Option(help="Bytes of a key's value; with the default keys 1.1 GB of state.")
    ] = 200,
    tasks: Annotated[int, typer.Option(help="Tasks, each with a partition.")] = 6,
    rate: Annotated[float, typer.Option(help="Records per second.")] = 600.0,
    cpu_ms: Annotated[
        float, typer.Option(help="CPU time in ms that a record takes; give a lower rate with it.")
    ] = 0.0,
    brokers: Annotated[int, typer.Option(help="How many brokers.")] = 1,
    acceptable_recovery_lag: Annotated[
        int, typer.Option(help="acceptable.recovery.lag; give less for a small state.")
    ] = 1_000,
    settle: Annotated[
        float, typer.Option(help="Seconds that a step lasts after the group is balanced.")
    ] = 3.0,
    peer_python: PeerPython = None,
    as_json: AsJson = False,
) -> None:
    """KIP-441's experiment: instances join, crash and restart. How long does a task stand still?

    Starts its own broker on this machine and writes a state that takes a while to restore. Then
    one instance starts, a second and a third join, one is killed, and one is restarted, while
    records are counted exactly once: with KIP-441 (`kip441`), and with tasks that are assigned at
    once and restored first (`restore-first`). `quixstreams` makes the same steps with Quix Streams,
    if an environment has it (`make peers`). Another client's consumer reads all counts. Tasks that
    stay are the ones that the same instance runs before and after a step. Evictions are members
    whose session the broker ended.

    With the defaults a mode takes three to six minutes. The exit status is 1 if a mode failed or a
    count is wrong.

    Examples: `python -m experiments task-handover --out build/handover`,
    `python -m experiments task-handover --out build/quick --keys 20000 --acceptable-recovery-lag
    500`,
    `python -m experiments task-handover --out build/busy --modes kip441 --cpu-ms 20 --rate 30`,
    `python -m experiments task-handover --out build/peers --modes kip441,quixstreams
    --peer-python build/quix/bin/python`
    """

    def plan() -> Plan:
        check_streams()
        return Plan(
            modes=parse_modes(modes),
            keys=keys,
            value_size=value_size,
            tasks=tasks,
            rate=rate,
            cpu_ms=cpu_ms,
            brokers=brokers,
            acceptable_recovery_lag=acceptable_recovery_lag,
            settle_s=settle,
            peer_python=peer_python,
        )

    run_experiment(plan, Experiment, write_report, _show, out, as_json=as_json)


def _show(console: Console, out: Path, results: Results) -> None:
    table = new_table(
        None,
        ("mode", "step"),
        (
            *("longest gap s", "of tasks that stay", "balanced s", "MB followed", "MB restored"),
            *("rebalances", "evictions", "counts"),
        ),
    )
    for run in results.runs:
        table.add_row(
            run.mode,
            run.step,
            *run.figures(),
            "exact" if run.counts_exact else Text("wrong", "bold red"),
        )
    console.print(table)
    print_files(console, out)
