"""``kafkaclient experiment chaos``: what is lost, doubled or disordered while brokers fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kafkaclient.cli.run import FAILED, run_command, stderr_console
from kafkaclient.cli.run_experiment import results_console
from kafkaclient.cli.watcher import Watcher
from kafkaclient.experiments.chaos.experiment import Experiment
from kafkaclient.experiments.chaos.plan import PEERS, Plan, parse_kinds, parse_peers
from kafkaclient.experiments.chaos.report import write_report
from kafkaclient.experiments.chaos.results import REPORT, SUMMARY
from kafkaclient.experiments.chaos.streams import KINDS
from kafkaclient.experiments.slow_broker.plan import check_extras

if TYPE_CHECKING:
    from kafkaclient.experiments.chaos.results import ClientResult, Results

__all__ = ["chaos"]


Out = Annotated[Path, typer.Option(help="Folder for summary.json and report.html.")]


def chaos(  # noqa: PLR0913 - one for each fact of the campaign
    *,
    out: Out,
    seconds: Annotated[float, typer.Option(help="How long records are sent under faults.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Decides the faults; the same seed, the same.")] = 1,
    brokers: Annotated[int, typer.Option(help="How many brokers, 3 or 5.")] = 3,
    peers: Annotated[
        str,
        typer.Option(help=f"Clients beside ours: {', '.join(PEERS)}, joined by commas."),
    ] = "none",
    rate: Annotated[float, typer.Option(help="Records per second of each client.")] = 5000.0,
    kinds: Annotated[str, typer.Option(help="Kinds of records, joined by commas.")] = ",".join(
        KINDS
    ),
    producers: Annotated[int, typer.Option(help="Producers of each client.")] = 4,
    record_size: Annotated[int, typer.Option(help="Bytes of each record's value.")] = 100,
    outage: Annotated[
        float,
        typer.Option(help="No schedule: all brokers away for so many seconds, then back."),
    ] = 0.0,
    flat: Annotated[
        bool, typer.Option(help="Fail, too, when memory, tasks or open files have grown.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json on stdout instead of a table.")
    ] = False,
) -> None:
    """Send records while brokers die, stall and are cut off; then look for every one of them.

    Starts its own brokers on this machine, topics with three replicas of which two must be in sync,
    and sends records without key, with keys and to explicit partitions at once, while brokers are
    killed, terminated and paused, connections cut, bytes delayed and corrupted, leaders moved and
    topics grown. Another client's consumer reads everything back.

    The exit status is 1 when a record of ours failed, was lost, doubled, out of order, or is
    without an outcome.

    Examples: `kafkaclient experiment chaos --out build/chaos --seconds 600 --brokers 5`,
    `kafkaclient experiment chaos --out build/peers --seconds 180 --peers confluent,java`,
    `kafkaclient experiment chaos --out build/outage --seconds 90 --outage 30`
    """

    async def main() -> None:
        check_extras()
        plan = Plan(
            seconds=seconds,
            seed=seed,
            brokers=brokers,
            rate=rate,
            peers=parse_peers(peers),
            producers=producers,
            kinds=parse_kinds(kinds),
            record_size=record_size,
            outage=outage,
        )
        experiment = Experiment(plan, out, Watcher(stderr_console()))
        made.append(experiment.results)
        await experiment.run()

    made: list[Results] = []
    run_command(main())
    results = made[0]
    write_report(out, results)
    _show(out, results, as_json=as_json)
    ours = results.ours
    grown = flat and ours is not None and (ours.resources is None or not ours.resources.flat)
    if ours is None or not ours.is_clean or grown:
        raise typer.Exit(FAILED)


def _show(out: Path, results: Results, *, as_json: bool) -> None:
    console = results_console(out / SUMMARY, as_json=as_json)
    if console is None:
        return
    console.print(_counts(results))
    console.print()
    console.print(_latencies(results))
    console.print()
    for found in results.clients:
        for cause, count in found.causes.items():
            text = f"{found.client}: {count:,} failed: {cause}: {found.examples.get(cause, '')}"
            console.print(text, style="red", markup=False, soft_wrap=True)
    facts = results.as_json()
    for outage in facts["outages"]:
        console.print(
            "all brokers away: leaders elected at "
            f"{outage['leaders_elected']:.1f} s, first acknowledgement "
            f"{outage['first_ack_after_leaders_s']} s after that"
        )
    ours = results.ours
    if ours is not None and ours.resources is not None:
        early, late, _most = ours.resources.rss_mb
        state = "flat" if ours.resources.flat else "[bold red]grown[/]"
        console.print(
            f"memory of our client {early:.0f} MB early, {late:.0f} MB late: {state}; at most "
            f"{ours.resources.waiting[2]:,.0f} records waited at once"
        )
    console.print(
        f"{len(results.struck)} faults, some broker away {facts['down_share']:.0%} of the time; "
        f"{out / REPORT}, {out / SUMMARY}",
        style="dim",
        soft_wrap=True,
    )


def _counts(results: Results) -> Table:
    table = _table("What became of the records", "client")
    names = ("sent", "acked", "lost", "duplicated", "reordered", "failed", "unresolved")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for found in results.clients:
        values = found.verdict.as_json()
        table.add_row(
            found.client,
            *(_count(values[name], bad=name not in ("sent", "acked")) for name in names),
        )
    return table


def _latencies(results: Results) -> Table:
    table = _table("Latency of the acknowledged, ms", "client")
    table.add_column("records", no_wrap=True)
    for name in ("p50", "p99", "p99.9", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in results.clients:
        for kind, figures in _by_kind(found):
            table.add_row(
                found.client,
                kind,
                *("" if value is None else f"{value:,.1f}" for value in figures.values()),
            )
    return table


def _by_kind(found: ClientResult) -> list[tuple[str, dict[str, float | None]]]:
    return sorted(found.latencies.ms.items(), key=lambda entry: KINDS.index(entry[0]))


def _table(title: str, first: str) -> Table:
    table = Table(title=title, title_style="bold", title_justify="left", box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    return table


def _count(number: int, *, bad: bool) -> str:
    return f"[bold red]{number:,}[/]" if bad and number else f"{number:,}"
