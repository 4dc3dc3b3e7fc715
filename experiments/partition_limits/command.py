"""``python -m experiments partition-limits``: what more and more partitions cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from experiments.command import (
    AsJson,
    Out,
    new_table,
    print_files,
    print_problems,
    run_experiment,
)
from experiments.partition_limits.experiment import Experiment
from experiments.partition_limits.plan import Plan, parse_counts
from experiments.partition_limits.report import mbps_rows, write_report
from kafkaclient.pages import number

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from experiments.partition_limits.results import Results

__all__ = ["partition_limits"]


def partition_limits(
    *,
    out: Out,
    partitions: Annotated[
        str, typer.Option(help="Partitions on each broker, replicas included, by commas.")
    ] = "10,100,500,1000,5000",
    replication: Annotated[
        str, typer.Option(help="Replication factors, joined by commas.")
    ] = "1,3",
    brokers: Annotated[int, typer.Option(help="How many brokers.")] = 3,
    seconds: Annotated[float, typer.Option(help="How long our producer sends to a topic.")] = 8.0,
    record_size: Annotated[int, typer.Option(help="Bytes of each record's value.")] = 1024,
    java: Annotated[bool, typer.Option(help="Java's producer sends as many records, too.")] = True,
    as_json: AsJson = False,
) -> None:
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

    def plan() -> Plan:
        return Plan(
            partitions=parse_counts("--partitions", partitions),
            replication=parse_counts("--replication", replication),
            brokers=brokers,
            seconds=seconds,
            record_size=record_size,
            java=java,
        )

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
