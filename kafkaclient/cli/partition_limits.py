"""``kafkaclient experiment partition-limits``: what more and more partitions cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kafkaclient.cli.run import FAILED, stderr_console
from kafkaclient.cli.run_experiment import results_console, run_experiment
from kafkaclient.cli.watcher import Watcher
from kafkaclient.experiments.partition_limits.experiment import Experiment
from kafkaclient.experiments.partition_limits.plan import Plan, parse_counts
from kafkaclient.experiments.partition_limits.report import mbps_rows, write_report
from kafkaclient.experiments.partition_limits.results import REPORT, SUMMARY
from kafkaclient.experiments.slow_broker.plan import check_extras

if TYPE_CHECKING:
    from kafkaclient.experiments.partition_limits.results import Results

__all__ = ["partition_limits"]


Out = Annotated[Path, typer.Option(help="Folder for summary.json and report.html.")]


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
    java: Annotated[bool, typer.Option(help="Have Java's producer send as much, too.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json on stdout instead of tables.")
    ] = False,
) -> None:
    """KIP-578's experiment: throughput, creation and deletion by partitions on each broker.

    Starts its own brokers on this machine, and for each number of partitions and each replication
    factor creates a topic, writes to it as fast as it goes with our producer and with Java's, and
    deletes it. Writes OUT/summary.json after every topic, OUT/report.html at the end; Ctrl-C ends
    it and keeps what was measured.

    Everything takes about a quarter of an hour on two cores, and 4.5 GB of memory; 10000 partitions
    on each broker more of both. The exit status is 1 when a topic or a client's run failed, or a
    record of ours did.

    Examples: `kafkaclient experiment partition-limits --out build/partition-limits`,
    `kafkaclient experiment partition-limits --out build/quick --partitions 10,100 --seconds 3`,
    `kafkaclient experiment partition-limits --out build/most --partitions 10000`
    """

    def begin() -> Experiment:
        check_extras()
        plan = Plan(
            partitions=parse_counts("--partitions", partitions),
            replication=parse_counts("--replication", replication),
            brokers=brokers,
            seconds=seconds,
            record_size=record_size,
            java=java,
        )
        return Experiment(plan, out, Watcher(stderr_console()))

    experiment = run_experiment(begin, lambda found: _show(out, found.results, as_json=as_json))
    if not experiment.results.is_clean:
        raise typer.Exit(FAILED)


def _show(out: Path, results: Results, *, as_json: bool) -> None:
    if not results.cells:
        return
    write_report(out, results)
    console = results_console(out / SUMMARY, as_json=as_json)
    if console is None:
        return
    console.print(_throughput(results))
    console.print()
    console.print(_times(results))
    console.print()
    problems = [failure for cell in results.cells for failure in cell.failures]
    problems += [f"{name}: {reason}" for name, reason in results.left_out.items()]
    for problem in problems:
        console.print(problem, style="red", markup=False, soft_wrap=True)
    console.print(f"{out / REPORT}, {out / SUMMARY}", style="dim", soft_wrap=True)


def _throughput(results: Results) -> Table:
    counts = sorted({cell.partitions for cell in results.cells})
    table = _table("Mbit/s by partitions on each broker", "replication factor", "client")
    for count in counts:
        table.add_column(f"{count:,}", justify="right", no_wrap=True)
    for factor, client, rates in mbps_rows(results.cells):
        figures = (f"{rates[count]:,.1f}" if count in rates else "" for count in counts)
        table.add_row(str(factor), client, *figures)
    return table


def _times(results: Results) -> Table:
    table = _table("Creation and deletion, seconds", "on each broker", "replication factor")
    for name in ("partitions", "answered", "in sync", "directories", "unknown", "removed"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in results.cells:
        times = (cell.answered_s, cell.led_s, cell.directories_s, cell.unknown_s, cell.removed_s)
        table.add_row(
            f"{cell.partitions:,}",
            str(cell.replication),
            f"{cell.topic_partitions:,}",
            *("" if value is None else f"{value:,.1f}" for value in times),
        )
    return table


def _table(title: str, *first: str) -> Table:
    table = Table(title=title, title_style="bold", title_justify="left", box=None, pad_edge=False)
    for name in first:
        table.add_column(name, no_wrap=True)
    return table
