"""``kafkaclient experiment``: measurements against other clients, with brokers of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kafkaclient.cli.chaos import chaos
from kafkaclient.cli.partition_limits import partition_limits
from kafkaclient.cli.replication_quota import replication_quota
from kafkaclient.cli.run import FAILED, run_command, stderr_console
from kafkaclient.cli.run_experiment import results_console, run_experiment
from kafkaclient.cli.task_handover import task_handover
from kafkaclient.cli.watcher import RunsWatcher
from kafkaclient.experiments.slow_broker.compare import Row, rows
from kafkaclient.experiments.slow_broker.experiment import Experiment
from kafkaclient.experiments.slow_broker.plan import Plan, check_extras, parse_rates
from kafkaclient.experiments.slow_broker.report import write_report
from kafkaclient.experiments.slow_broker.results import REPORT, SUMMARY, Results
from kafkaclient.experiments.slow_broker.settings import OURS, PEERS, choose, parse_peers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["app"]


app = typer.Typer(
    help="Measurements on real brokers, against other Kafka clients.",
    no_args_is_help=True,
)

Out = Annotated[Path, typer.Option(help="Folder for summary.json, report.html and what they show.")]


@app.callback()
def experiments() -> None:
    """Measurements on real brokers, against other Kafka clients."""


@app.command("slow-broker")
def slow_broker(  # noqa: PLR0913 - one for each fact of the experiment
    *,
    out: Out,
    rates: Annotated[str, typer.Option(help="Records per second, joined by commas.")] = "2048,4096",
    delay_ms: Annotated[
        float, typer.Option(help="How late broker 0 answers each Produce request.")
    ] = 20.0,
    brokers: Annotated[int, typer.Option(help="How many brokers.")] = 3,
    partitions: Annotated[
        int, typer.Option(help="Partitions of each topic, led by the brokers in turn.")
    ] = 3,
    peers: Annotated[
        str, typer.Option(help="Clients to compare with, joined by commas; none: only ours.")
    ] = ",".join(PEERS),
    repeat: Annotated[int, typer.Option(help="Times to make every run; tables show medians.")] = 1,
    seconds: Annotated[float, typer.Option(help="How long each run sends records.")] = 20.0,
    record_size: Annotated[int, typer.Option(help="Bytes of each record's value.")] = 512,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Only these of our settings; or, as CLIENT:NAME, of a peer's. Joined by commas, "
            "with * and ?.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json on stdout instead of tables.")
    ] = False,
) -> None:
    """KIP-794's experiment: one broker answers late; what do records wait, and where do they go?

    Starts its own brokers on this machine and sends unkeyed records at a steady rate with every
    client and setting in turn, each run to a new topic of one replica, all through the same
    proxies, which hold back each Produce response of broker 0. Writes OUT/summary.json after every
    run and OUT/report.html at the end; Ctrl-C ends it and keeps what was measured.

    All settings at both rates take about half an hour. The exit status is 1 when a run failed, or
    a record of ours was refused, lost, duplicated or reordered.

    Examples: `kafkaclient experiment slow-broker --out build/slow-broker`,
    `kafkaclient experiment slow-broker --out build/quick --rates 2048 --seconds 5
    --settings 'default,java:adaptive*' --peers java`,
    `kafkaclient experiment slow-broker --out build/ours --peers none --repeat 3`
    """

    def begin() -> Experiment:
        check_extras()
        plan = Plan(
            settings=tuple(choose(parse_peers(peers), settings)),
            rates=parse_rates(rates),
            delay_ms=delay_ms,
            brokers=brokers,
            partitions=partitions,
            repeat=repeat,
            seconds=seconds,
            record_size=record_size,
        )
        return Experiment(plan, out, RunsWatcher(stderr_console()))

    experiment = run_experiment(begin, lambda found: _show(out, found.results, as_json=as_json))
    if not _is_clean(experiment.results):
        raise typer.Exit(FAILED)


app.command("chaos")(chaos)
app.command("partition-limits")(partition_limits)
app.command("replication-quota")(replication_quota)
app.command("task-handover")(task_handover)


@app.command("report")
def report(*, out: Out) -> None:
    """Draw OUT/report.html again from the files of an experiment.

    Example: `kafkaclient experiment report --out build/slow-broker`
    """

    async def main() -> None:
        write_report(out, Results.read(out))

    run_command(main())
    Console(highlight=False).print(str(out / REPORT), soft_wrap=True)


def _show(out: Path, results: Results, *, as_json: bool) -> None:
    if not results.runs:
        return
    write_report(out, results)
    console = results_console(out / SUMMARY, as_json=as_json)
    if console is None:
        return
    for rate, found in rows(results).items():
        console.print(_table(rate, found, console.width))
        console.print()
    for skipped in results.skipped:
        where = "" if skipped.rate is None else f" at {skipped.rate:,g}/s"
        console.print(
            f"left out: {skipped.client}: {skipped.setting}{where}: {skipped.reason}",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )
    console.print(f"{out / REPORT}, {out / SUMMARY}", style="dim", soft_wrap=True)


def _is_clean(results: Results) -> bool:
    ours = (run for run in results.runs if run.client == OURS)
    return not any(skipped.rate is not None for skipped in results.skipped) and not any(
        run.errors or run.lost or run.duplicated or run.reordered for run in ours
    )


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"


def _wrong(row: Row) -> str:
    count = row.errors + sum(n or 0 for n in (row.lost, row.duplicated, row.reordered))
    return f"[bold red]{count:,}[/]" if count else "0"


_COLUMNS: tuple[tuple[str, int, Callable[[Row], str]], ...] = (
    ("rec/s", 116, lambda row: f"{row.records_per_s:,.0f}"),
    ("avg ms", 0, lambda row: _number(row.avg_ms, 1)),
    ("p50", 132, lambda row: _number(row.p50_ms, 1)),
    ("p99", 0, lambda row: _number(row.p99_ms, 1)),
    ("p99.9", 132, lambda row: _number(row.p999_ms, 1)),
    (
        "MB per broker",
        150,
        lambda row: " / ".join(f"{sent / 1e6:.1f}" for sent in row.bytes_per_broker),
    ),
    ("share", 0, lambda row: _number(row.slow_share, 2)),
    ("req/s", 116, lambda row: _number(row.requests_per_s, 0)),
    ("avg/Java", 98, lambda row: _number(row.avg_ratio, 2)),
    ("p99/Java", 98, lambda row: _number(row.p99_ratio, 2)),
    ("wrong", 0, _wrong),
)
"""Heading, the least width of a terminal that shows it, text."""


def _table(rate: float, found: Sequence[Row], width: int) -> Table:
    runs = max(row.runs for row in found)
    table = Table(
        title=f"{rate:,g} records/s, broker 0 late"
        + (f", medians of {runs} runs" if runs > 1 else ""),
        title_style="bold",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("client", no_wrap=True)
    table.add_column("setting", no_wrap=True)
    columns = [(heading, text) for heading, least, text in _COLUMNS if width >= least]
    for heading, _text in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found:
        table.add_row(
            row.client,
            row.setting,
            *(text(row) for _heading, text in columns),
            style="bold" if (row.client, row.setting) == (OURS, "default") else None,
        )
    return table
