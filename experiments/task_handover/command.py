"""``python -m experiments task-handover``: how long tasks stand still when they move."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING

from rich.text import Text

from experiments.command import AsJson, Out, new_table, of_plan, print_files, run_experiment
from experiments.task_handover.experiment import Experiment
from experiments.task_handover.plan import Plan
from experiments.task_handover.report import write_report

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from experiments.task_handover.results import Results

__all__ = ["task_handover"]


@of_plan(Plan)
def task_handover(*, out: Out, plan: Callable[..., Plan], as_json: AsJson = False) -> None:
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
