"""``python -m experiments chaos``: what is lost, duplicated or reordered while brokers fail."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from experiments.chaos.experiment import Experiment
from experiments.chaos.plan import Plan
from experiments.chaos.report import write_report
from experiments.chaos.streams import KINDS
from experiments.command import (
    AsJson,
    Out,
    new_table,
    of_plan,
    print_files,
    print_problems,
    run_experiment,
)
from kafkaclient.cli.output import FAILED
from kafkaclient.pages import number

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from experiments.chaos.results import ClientResult, Results

__all__ = ["chaos"]


@of_plan(Plan)
def chaos(
    *,
    out: Out,
    plan: Callable[..., Plan],
    flat: Annotated[
        bool, typer.Option(help="Fail also if memory, tasks or open files have grown.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send records while brokers die, stall and are cut off; then look for every record.

    Starts its own brokers on this machine, and topics with three replicas, two of which must be in
    sync. Sends records without key, with keys and to explicit partitions at once, while brokers are
    killed, terminated and paused, connections cut, bytes delayed and corrupted, leaders moved and
    topics grown. Another client's consumer reads everything back.

    The exit status is 1 if a record of ours failed, was lost, duplicated or reordered, or has no
    outcome.

    Examples: `python -m experiments chaos --out build/chaos --seconds 600 --brokers 5`,
    `python -m experiments chaos --out build/peers --seconds 180 --peers confluent,java`,
    `python -m experiments chaos --out build/outage --seconds 90 --outage 30`,
    `python -m experiments chaos --out build/kerberos --seconds 600 --kerberos 60`
    """

    results = run_experiment(plan, Experiment, write_report, _show, out, as_json=as_json)
    if flat and not results.is_flat:
        raise typer.Exit(FAILED)


def _show(console: Console, out: Path, results: Results) -> None:
    console.print(_counts(results))
    console.print()
    console.print(_latencies(results))
    console.print()
    print_problems(
        console,
        (
            f"{found.client}: {count:,} failed: {cause}: {found.examples.get(cause, '')}"
            for found in results.clients
            for cause, count in found.causes.items()
        ),
    )
    facts = results.as_json()
    for outage in facts["outages"]:
        console.print(
            "all brokers away: leaders elected at "
            f"{outage['leaders_elected']:.1f} s, first acknowledgement "
            f"{outage['first_ack_after_leaders_s']} s after that"
        )
    if results.logins is not None:
        console.print(f"{results.logins} logins with Kerberos")
    ours = results.ours
    if ours is not None and ours.resources is not None:
        early, late, _most = ours.resources.rss_mb
        state = "flat" if ours.resources.flat else ("grown", "bold red")
        console.print(
            Text.assemble(
                f"memory of our client {early:.0f} MB early, {late:.0f} MB late: ",
                state,
                f"; at most {ours.resources.waiting[2]:,.0f} records waited at once",
            )
        )
    away = f"some broker away {facts['down_share']:.0%} of the time"
    print_files(console, out, f"{len(results.struck)} faults, {away}; ")


def _counts(results: Results) -> Table:
    names = ("sent", "acked", "lost", "duplicated", "reordered", "failed", "unresolved")
    table = new_table("What became of the records", ["client"], names)
    for found in results.clients:
        values = found.verdict.as_json()
        table.add_row(
            found.client,
            *(_count(values[name], bad=name not in ("sent", "acked")) for name in names),
        )
    return table


def _latencies(results: Results) -> Table:
    table = new_table(
        "Latency of the acknowledged records, ms",
        ("client", "records"),
        ("p50", "p99", "p99.9", "max"),
    )
    for found in results.clients:
        for kind, figures in _by_kind(found):
            table.add_row(found.client, kind, *(number(value, 1) for value in figures.values()))
    return table


def _by_kind(found: ClientResult) -> list[tuple[str, dict[str, float | None]]]:
    return sorted(found.latencies.ms.items(), key=lambda entry: KINDS.index(entry[0]))


def _count(found: int, *, bad: bool) -> str | Text:
    return Text(f"{found:,}", "bold red") if bad and found else f"{found:,}"
