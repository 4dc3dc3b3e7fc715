"""``kafkaclient limits``: partition limits (KIP-578) for a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from kafkaclient.admin import Limits
from kafkaclient.cli.admin import OVER_LIMIT, Connect, on_cluster
from kafkaclient.cli.connection import AsJson, LimitsFile, output_file
from kafkaclient.cli.output import (
    picked,
    print_json,
    print_message,
    print_table,
    stdout_console,
)
from kafkaclient.cli.profile_file import comma_pairs
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from kafkaclient.admin import LimitsReport

app = typer.Typer(
    help="Limits for the number of partitions (KIP-578), which brokers themselves do not have.\n\n"
    "`max.broker.partitions` bounds the replicas on each broker, `max.partitions` the partitions "
    "of the cluster. They are kept in the topic `__kafkaclient_partition_limits` (or a file). "
    "`kafkaclient topics create`, `add-partitions` and `kafkaclient reassign` keep within them, "
    "and the library with Admin(limits='topic'). Other tools don't: `check` finds what exceeds "
    "the limits.\n\n"
    "Exit status 3 of `check`: something is above a limit.",
    no_args_is_help=True,
)

_BAR = 24


@app.command("set")
@on_cluster
async def set_(
    connect: Connect,
    *,
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help="max.broker.partitions or max.partitions: a number or off; max.partitions.count: "
            "partitions or replicas, which max.partitions then bounds.",
        ),
    ],
    limits_file: Annotated[
        Path | None,
        typer.Option(help="File for the limits, in place of the cluster.", callback=output_file),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set limits, and leave the others as they are. Existing partitions above a new limit stay;
    no more can be added.

    Example:

    - `kafkaclient limits set max.broker.partitions=4000 max.partitions=off`
    """
    given = comma_pairs(changes, "limits set")
    for name, value in given.items():
        if not value:
            raise ConfigError(f"{name} has no value: {name}=off switches the limit off")
    Limits.parse(given)  # raises ConfigError for what is no limit
    async with connect(limits_file=limits_file, new_file=True) as admin:
        await admin.set_limits(given)
        report = await admin.check_limits()
    _print_limits(report.limits, limits_file, as_json=as_json)
    for violation in () if as_json else report.violations:
        print_message("note", f"{violation}; it stays, and no more can be added")


@app.command()
@on_cluster
async def show(
    connect: Connect, *, limits_file: LimitsFile = None, as_json: AsJson = False
) -> None:
    """Show the limits.

    Example:

    - `kafkaclient limits show -b localhost:9092`
    """
    async with connect(limits_file=limits_file) as admin:
        limits = await admin.limits()
    _print_limits(limits, limits_file, as_json=as_json)


@app.command()
@on_cluster
async def check(
    connect: Connect,
    *,
    warn_at: Annotated[
        float | None,
        typer.Option(min=0, max=100, help="Exit with 3 also if more than this percentage is used."),
    ] = None,
    limits_file: LimitsFile = None,
    as_json: AsJson = False,
) -> None:
    """Compare the cluster with its limits. For cron and CI, the exit status is 3 if something is
    above a limit.

    Kafka's own (internal) topics do not count.

    Examples:

    - `kafkaclient limits check`
    - `kafkaclient limits check --warn-at 80 --json`
    """
    async with connect(limits_file=limits_file) as admin:
        report = await admin.check_limits()
    findings = report.above(1.0 if warn_at is None else warn_at / 100)
    if as_json:
        print_json(_report_json(report, findings))
    else:
        _print_report(report)
        share = "" if warn_at is None else f" {warn_at:g} %"
        for finding in findings:
            print_message(f"above{share}", finding)
    if findings:
        raise typer.Exit(OVER_LIMIT)


def _limits_json(limits: Limits) -> dict[str, Any]:
    return {
        "max.broker.partitions": limits.max_broker_partitions,
        "max.partitions": limits.max_partitions,
        "max.partitions.count": limits.count,
    }


def _report_json(report: LimitsReport, findings: tuple[str, ...]) -> dict[str, Any]:
    return {
        "ok": not findings,
        "limits": _limits_json(report.limits),
        "above": findings,
        "cluster": picked(report, "partitions", "replicas", "headroom"),
        "brokers": [
            {"broker": broker.node_id, "replicas": broker.hosted}
            | picked(broker, "rack", "up", "headroom")
            for broker in report.brokers
        ],
    }


def _print_limits(limits: Limits, file: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json(_limits_json(limits))
        return
    rows = [
        ("max.broker.partitions", _number(limits.max_broker_partitions), "replicas on each broker"),
        ("max.partitions", _number(limits.max_partitions), f"{limits.count} of the cluster"),
    ]
    kept = "the cluster" if file is None else str(file)
    title = f"partition limits in {kept}"
    print_table(("limit", "value", "bounds"), rows, right=("value",), title=title)


def _print_report(report: LimitsReport) -> None:
    limits = report.limits
    rows = [
        _row(
            f"broker {broker.node_id}" + ("" if broker.up else " (down)"),
            broker.rack or "",
            broker.hosted,
            limits.max_broker_partitions,
        )
        for broker in report.brokers
    ]
    rows.append(_row(f"cluster ({limits.count})", "", report.counted, limits.max_partitions))
    figures = ("used", "limit", "head-room")
    print_table(("", "rack", *figures, "use"), rows, right=figures)
    if not limits.any:
        typer.echo("there are no limits; set some with `kafkaclient limits set`")


def _row(name: str, rack: str, used: int, limit: int | None) -> tuple[str | Text, ...]:
    if limit is None:
        return name, rack, f"{used:,}", "off", "", ""
    share = used / limit if limit else float(used > 0) * 2
    return name, rack, f"{used:,}", f"{limit:,}", f"{limit - used:,}", _bar(share)


def _bar(share: float) -> Text:
    color = "red" if share > 1 else "yellow" if share >= 0.8 else "green"
    filled = min(_BAR, round(share * _BAR))
    full, empty = "#." if stdout_console().options.ascii_only else "█░"
    return Text.assemble((full * filled, color), (empty * (_BAR - filled), "dim"), f" {share:.0%}")


def _number(limit: int | None) -> str:
    return "off" if limit is None else f"{limit:,}"
