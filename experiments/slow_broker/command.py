"""``python -m experiments slow-broker``, and ``report`` and ``pictures`` of its results."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - typer reads the annotations
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from experiments.clients import OURS
from experiments.command import (
    AsJson,
    Out,
    new_table,
    of_plan,
    print_files,
    print_problems,
    run_experiment,
)
from experiments.experiment import REPORT
from experiments.options import parse_peers
from experiments.slow_broker.compare import Row, rows
from experiments.slow_broker.experiment import Experiment
from experiments.slow_broker.fleet import FLEET_RATE
from experiments.slow_broker.pictures import draw_pictures
from experiments.slow_broker.plan import Plan
from experiments.slow_broker.report import write_report
from experiments.slow_broker.results import Results
from experiments.slow_broker.settings import OBJECT_STORE, PEERS, choose
from kafkaclient.cli.output import run_blocking, stdout_console
from kafkaclient.errors import ConfigError
from kafkaclient.pages import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

__all__ = ["object_store", "pictures", "report", "slow_broker"]


_ALL_PEERS = ",".join(PEERS)

Peers = Annotated[
    str, typer.Option(help="Clients to compare with, joined by commas; none: only ours.")
]


@of_plan(Plan)
def slow_broker(
    *,
    out: Out,
    plan: Callable[..., Plan],
    peers: Peers = _ALL_PEERS,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Only these settings: NAME of ours, CLIENT:NAME of a peer's. Joined by commas, "
            "with * and ?. compared: one of each client.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """KIP-794's experiment: one broker answers late. How long do records wait, where do they go?

    Starts its own brokers on this machine. Sends records without key at a steady rate, with every
    client and setting in turn, each run to a new topic of one replica. All runs go through the same
    proxies, which delay each Produce response of broker 0. Writes OUT/summary.json after every run
    and OUT/report.html at the end; Ctrl-C ends the experiment and keeps the runs so far.

    All settings at both rates take about half an hour. The exit status is 1 if a run failed, or if
    a record of ours was refused, lost, duplicated or reordered.

    Examples: `python -m experiments slow-broker --out build/slow-broker`,
    `python -m experiments slow-broker --out build/quick --rates 2048 --seconds 5
    --settings 'default,java:adaptive*' --peers java`,
    `python -m experiments slow-broker --out build/ours --peers none --repeat 3`
    """

    run_experiment(
        lambda: plan(settings=tuple(choose(parse_peers(peers, PEERS), settings))),
        Experiment,
        write_report,
        _show,
        out,
        as_json=as_json,
    )


@of_plan(Plan, rates="2048,8192", delay_ms=400.0, partitions=6, seconds=10.0, record_size=1000)
def object_store(
    *,
    out: Out,
    plan: Callable[..., Plan],
    peers: Peers = _ALL_PEERS,
    settings: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Only these settings, as with slow-broker."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Every broker answers 400 ms late, as brokers do that write to an object store.

    As slow-broker, with three differences: all brokers are late, the requests of a connection do
    not wait for each other, and each client is measured with its defaults and with large batches
    (docs/how-to/clouds.md).

    Examples: `python -m experiments object-store --out build/object-store --repeat 3`,
    `python -m experiments object-store --out build/quick --peers none --rates 2048`
    """

    run_experiment(
        lambda: plan(
            settings=tuple(choose(parse_peers(peers, PEERS), settings, OBJECT_STORE)), all_late=True
        ),
        Experiment,
        write_report,
        _show,
        out,
        as_json=as_json,
    )


def report(*, out: Out) -> None:
    """Draw OUT/report.html again from the files of a slow-broker experiment.

    Example: `python -m experiments report --out build/slow-broker`
    """
    run_blocking(lambda: write_report(out, Results.read(out)))
    stdout_console().print(str(out / REPORT), soft_wrap=True)


def pictures(
    results: Annotated[Path, typer.Argument(help="The folder of a slow-broker experiment.")],
    folder: Annotated[Path, typer.Argument(help="Where the SVG files go.")],
) -> None:
    """Draw the slow-broker experiment's pictures, as SVG files.

    Needs matplotlib, which is installed with the development tools.

    Example: `python -m experiments pictures build/slow-broker build/pictures`
    """

    def draw() -> list[Path]:
        try:
            return draw_pictures(results, folder)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{error.name} is not installed; the development tools have it"
            ) from error

    for path in run_blocking(draw):
        stdout_console().print(str(path), soft_wrap=True)


def _show(console: Console, out: Path, results: Results) -> None:
    for rate, found in rows(results).items():
        console.print(_table(results, rate, found, console.width))
        console.print()
    if results.fleets:
        console.print(_fleets(results))
        console.print()
    print_problems(
        console,
        (
            f"left out: {skipped.client}: {skipped.setting}"
            + ("" if skipped.rate is None else f" at {skipped.rate:,g}/s")
            + f": {skipped.reason}"
            for skipped in results.skipped
        ),
        style="yellow",
    )
    print_files(console, out)


def _fleets(results: Results) -> Table:
    table = new_table(
        f"many producers of {FLEET_RATE:g} records/s each, in virtual time",
        ["setting"],
        ["producers", "avg ms", "p99", "slow share", "most/fewest bytes of the others"],
    )
    for fleet in results.fleets:
        table.add_row(
            fleet.setting,
            f"{fleet.producers:,}",
            *(number(fleet.avg_ms, 1), number(fleet.p99_ms, 1)),
            *(number(fleet.slow_share, 2), number(fleet.evenness, 2)),
        )
    return table


def _wrong(row: Row) -> str | Text:
    count = row.errors + sum(n or 0 for n in (row.lost, row.duplicated, row.reordered))
    return Text(f"{count:,}", "bold red") if count else "0"


_COLUMNS: tuple[tuple[str, int, Callable[[Row], str | Text]], ...] = (
    ("rec/s", 116, lambda row: f"{row.records_per_s:,.0f}"),
    ("avg ms", 0, lambda row: number(row.avg_ms, 1)),
    ("p50", 132, lambda row: number(row.p50_ms, 1)),
    ("p99", 0, lambda row: number(row.p99_ms, 1)),
    ("p99.9", 132, lambda row: number(row.p999_ms, 1)),
    (
        "MB per broker",
        150,
        lambda row: " / ".join(f"{sent / 1e6:.1f}" for sent in row.bytes_per_broker),
    ),
    ("share", 0, lambda row: number(row.slow_share, 2)),
    ("req/s", 116, lambda row: number(row.requests_per_s, 0)),
    ("avg/Java", 98, lambda row: number(row.avg_ratio, 2)),
    ("p99/Java", 98, lambda row: number(row.p99_ratio, 2)),
    ("wrong", 0, _wrong),
)
"""Heading, columns that the terminal needs to show it, and text."""


def _table(results: Results, rate: float, found: Sequence[Row], width: int) -> Table:
    runs = max(row.runs for row in found)
    medians = f", medians of {runs} runs" if runs > 1 else ""
    late = "all brokers" if results.plan.get("all_late") else "broker 0"
    columns = [(heading, text) for heading, least, text in _COLUMNS if width >= least]
    table = new_table(
        f"{rate:,g} records/s, {late} late{medians}",
        ("client", "setting"),
        [heading for heading, _text in columns],
    )
    for row in found:
        table.add_row(
            row.client,
            row.setting,
            *(text(row) for _heading, text in columns),
            style="bold" if (row.client, row.setting) == (OURS, "default") else None,
        )
    return table
