"""``kafkaclient limits``: partition limits (KIP-578) for a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.cli.admin import (
    OVER_LIMIT,
    AsJson,
    Bootstrap,
    CommandConfig,
    LimitsFile,
    cluster,
    pairs,
    print_json,
    print_table,
    run_admin,
)
from kafkaclient.cli.run import stderr_console, stdout_console

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.admin import Limits, LimitsReport

__all__ = ["app"]

app = typer.Typer(
    help="Limits for the number of partitions (KIP-578), which brokers themselves do not have.\n\n"
    "`max.broker.partitions` bounds the replicas on each broker, `max.partitions` the partitions "
    "of the cluster. They are kept in the topic `__kafkaclient_partition_limits` (or a file), and "
    "`kafkaclient topics create` and `add-partitions`, and the library, keep within them. Other "
    "tools don't: `check` tells what they did.\n\n"
    "Examples: `kafkaclient limits set max.broker.partitions=4000 max.partitions=200000`, "
    "`kafkaclient limits check --warn-at 80`.\n\n"
    "Exit status: 0 done, 1 failed, 2 wrong use, 3 (`check`) something is above a limit.",
    no_args_is_help=True,
)

_BAR = 24


@app.command("set")
def set_(
    *,
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help="max.broker.partitions, max.partitions: a number or off; max.partitions.count: "
            "partitions or replicas, what max.partitions bounds.",
        ),
    ],
    limits_file: LimitsFile = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Set limits, and leave those not named as they are. Nothing that exists is touched: what is
    above a new limit stays, and gets no more.

    Example: `kafkaclient limits set max.broker.partitions=4000 max.partitions=off`
    """

    async def run() -> LimitsReport:
        wanted: dict[str, str | int | None] = dict(pairs(changes, "limits set"))
        async with cluster(bootstrap_server, command_config, limits_file=limits_file) as admin:
            await admin.set_limits(wanted)
            return await admin.check_limits()

    report = run_admin(run())
    if as_json:
        print_json(_limits_json(report.limits))
        return
    _print_limits(report.limits, limits_file)
    for violation in report.violations:
        stderr_console().print(f"[yellow]note:[/] {violation}; it stays, and gets no more")


@app.command()
def show(
    *,
    limits_file: LimitsFile = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show the limits.

    Example: `kafkaclient limits show --bootstrap-server localhost:9092`
    """

    async def run() -> Limits:
        async with cluster(bootstrap_server, command_config, limits_file=limits_file) as admin:
            return await admin.limits()

    limits = run_admin(run())
    if as_json:
        print_json(_limits_json(limits))
    else:
        _print_limits(limits, limits_file)


@app.command()
def check(
    *,
    warn_at: Annotated[
        float | None,
        typer.Option(
            min=0, max=100, help="Exit with 3 also when more than so many percent are used up."
        ),
    ] = None,
    limits_file: LimitsFile = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Compare the cluster with its limits; for cron and CI by the exit status: 3 when something is
    above a limit.

    Kafka's own (internal) topics do not count.

    Examples: `kafkaclient limits check`, `kafkaclient limits check --warn-at 80 --json`
    """

    async def run() -> LimitsReport:
        async with cluster(bootstrap_server, command_config, limits_file=limits_file) as admin:
            return await admin.check_limits()

    report = run_admin(run())
    findings = report.above(1.0 if warn_at is None else warn_at / 100)
    if as_json:
        print_json(_report_json(report, findings))
    else:
        _print_report(report)
        share = "" if warn_at is None else f" {warn_at:g} %"
        for finding in findings:
            stderr_console().print(f"[red]above{share}:[/] {finding}")
    if findings:
        raise typer.Exit(OVER_LIMIT)


# ------------------------------------------------------------------------------------------------


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
        "above": list(findings),
        "cluster": {
            "partitions": report.partitions,
            "replicas": report.replicas,
            "headroom": report.headroom,
        },
        "brokers": [
            {
                "broker": broker.node_id,
                "rack": broker.rack,
                "up": broker.up,
                "replicas": broker.hosted,
                "headroom": broker.headroom,
            }
            for broker in report.brokers
        ],
    }


def _print_limits(limits: Limits, file: Path | None) -> None:
    counted = "replicas" if limits.count == "replicas" else "partitions"
    rows = [
        ("max.broker.partitions", _number(limits.max_broker_partitions), "replicas on each broker"),
        ("max.partitions", _number(limits.max_partitions), f"{counted} of the cluster"),
    ]
    kept = "the cluster" if file is None else str(file)
    print_table(
        {"limit": "", "value": "right", "bounds": ""}, rows, title=f"partition limits in {kept}"
    )


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
    columns = {
        "": "",
        "rack": "",
        "used": "right",
        "limit": "right",
        "head-room": "right",
        "use": "",
    }
    print_table(columns, rows)
    if not limits.any:
        stdout_console().print("there are no limits; kafkaclient limits set gives some")


def _row(name: str, rack: str, used: int, limit: int | None) -> tuple[str, ...]:
    if limit is None:
        return name, rack, f"{used:,}", "off", "", ""
    share = used / limit if limit else float(used > 0) * 2
    return name, rack, f"{used:,}", f"{limit:,}", f"{limit - used:,}", _bar(share)


def _bar(share: float) -> str:
    color = "red" if share > 1 else "yellow" if share >= 0.8 else "green"
    filled = min(_BAR, round(share * _BAR))
    return f"[{color}]{'█' * filled}[/][dim]{'░' * (_BAR - filled)}[/] {share:.0%}"


def _number(limit: int | None) -> str:
    return "off" if limit is None else f"{limit:,}"
