"""``python -m experiments partition-limits``: what more and more partitions cost."""

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
from experiments.partition_limits.experiment import Experiment
from experiments.partition_limits.plan import Plan
from experiments.partition_limits.report import mbps_rows, write_report
from kafkaclient.pages import number

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from experiments.partition_limits.results import Results

__all__ = ["partition_limits"]


@of_plan(Plan)
def partition_limits(*, out: Out, plan: Callable[..., Plan], as_json: AsJson = False) -> None:
    """KIP-578's experiment: throughput, creation and deletion by partitions on each broker.

    Starts its own brokers on this machine. For each number of partitions and each replication
    factor, creates a topic, writes to it as fast as possible with our producer and with Java's, and
    deletes it. Writes OUT/summary.json after every topic, OUT/report.html at the end; Ctrl-C ends
    the experiment and keeps the topics so far.

    The defaults take about a quarter of an hour on two cores, and 4.5 GB of memory; 10000
    partitions on each broker take more of both. The exit status is 1 if a topic, a client's run or
    a record of ours failed.

    Examples: `python -m experiments partition-limits --out build/partition-limits`,
    `python -m experiments partition-limits --out build/quick --partitions 10,100 --seconds 3`,
    `python -m experiments partition-limits --out build/most --partitions 10000`
    """

    run_experiment(plan, Experiment, write_report, _show, out, as_json=as_json)


def _show(console: Console, out: Path, results: Results) -> None:
    console.print(_throughput(results))
    console.print()
    console.print(_times(results))
    console.print()
    print_problems(console, (failure for cell in results.cells for failure in cell.failures))
    print_problems(console, (f"{name}: {reason}" for name, reason in results.left_out.items()))
    print_files(console, out)


def _throughput(results: Results) -> Table:
    counts = sorted({cell.partitions for cell in results.cells})
    table = new_table(
        "Mbit/s by partitions on each broker",
        ("replication factor", "client"),
        [f"{count:,}" for count in counts],
    )
    for factor, client, rates in mbps_rows(results.cells):
        table.add_row(str(factor), client, *(number(rates.get(count), 1) for count in counts))
    return table


def _times(results: Results) -> Table:
    table = new_table(
        "Creation and deletion, seconds",
        ("on each broker", "replication factor"),
        ("partitions", "answered", "in sync", "directories", "unknown", "removed"),
    )
    for cell in results.cells:
        table.add_row(
            f"{cell.partitions:,}",
            str(cell.replication),
            f"{cell.topic_partitions:,}",
            *(number(value, 1) for value in cell.times),
        )
    return table
