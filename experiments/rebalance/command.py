"""``python -m experiments rebalance-1000``: how long until a large group is balanced again?"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING

from experiments.command import (
    AsJson,
    Out,
    new_table,
    of_plan,
    print_files,
    print_problems,
    run_experiment,
)
from experiments.rebalance.experiment import Experiment
from experiments.rebalance.plan import Plan
from experiments.rebalance.report import write_report

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from experiments.rebalance.results import Results

__all__ = ["rebalance_1000"]


@of_plan(Plan)
def rebalance_1000(*, out: Out, plan: Callable[..., Plan], as_json: AsJson = False) -> None:
    """1,000 tasks run on 10 instances, and one more joins: how long until they are balanced?

    Starts its own broker and instances on this machine, each of which is a process of its own.
    Measures the time from the end of the last warm-up until every task runs once and no copy is
    left, and counts rebalances and evictions. Records are counted exactly once meanwhile; another
    client's consumer reads all counts.

    The exit status is 1 if a count is wrong.

    Examples: `python -m experiments rebalance-1000 --out build/rebalance`,
    `python -m experiments rebalance-1000 --out build/quick --topics 2 --partitions 6 --instances 2`
    """

    run_experiment(plan, Experiment, write_report, _show, out, as_json=as_json)


def _show(console: Console, out: Path, results: Results) -> None:
    assert results.joined is not None
    table = new_table(None, ("measured",), ("figure",))
    for name, figure in results.figures():
        table.add_row(name, figure)
    console.print(table)
    print_problems(console, results.joined.examples)
    print_files(console, out)
