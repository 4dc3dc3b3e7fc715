"""``kafkaclient throttle``: shows, sets and removes replication quotas."""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkaclient.admin import Lifted
from kafkaclient.admin.reassign.estimate import shown
from kafkaclient.admin.reassign.plan import parse_broker_list
from kafkaclient.cli import reassign_report as report
from kafkaclient.cli.admin import Connect, confirm, on_cluster
from kafkaclient.cli.connection import AsJson, Yes
from kafkaclient.cli.output import FAILED, print_json, print_message
from kafkaclient.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from kafkaclient.admin import Admin

app = typer.Typer(
    help="Quotas for the replication between brokers (KIP-73).\n\n"
    "`kafkaclient reassign execute` sets its quotas and removes its quotas by itself. Use the "
    "commands of `throttle` to change quotas during a reassignment, to set quotas for brokers that "
    "have much to replicate, and to remove quotas that are left over.",
    no_args_is_help=True,
)

_CHECK_EVERY_S = 1.0


@app.command()
@on_cluster
async def show(connect: Connect, *, as_json: AsJson = False) -> None:
    """Show what is throttled, and whether kafkaclient set the throttle.

    Example:

    - `kafkaclient throttle show --json`
    """
    async with connect() as admin:
        found = await admin.replication_quotas.describe()
    if as_json:
        print_json(report.throttles_json(found))
    else:
        report.print_throttles(found)
    if found.failures or found.topic_failures:
        raise typer.Exit(FAILED)


@app.command("set")
@on_cluster
async def set_(
    connect: Connect,
    *,
    replication_quota: Annotated[
        int, typer.Option("--replication-quota", "--throttle", min=0, help="Bytes per second.")
    ],
    broker: Annotated[
        str | None,
        "Throttle the replication to these brokers (as in 3,4) until they are in sync. "
        "Without it: change the quota of the moves under way.",
    ] = None,
    wait: Annotated[
        bool, "With --broker: wait until they are in sync, then remove their throttles."
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Change the quota of moves under way. With `--broker`, throttle brokers that will start empty,
    or that were down for long (KIP-73's bootstrapping broker).

    With `--wait`, a broker that is down gets its own quota when it is up again. The brokers that
    send to it are throttled from the start.

    Examples:

    - `kafkaclient throttle set --replication-quota 50000000`
    - `kafkaclient throttle set --broker 3 --replication-quota 50000000 --wait`
    """
    if wait and broker is None:
        raise ConfigError("--wait goes with --broker")
    brokers = [] if broker is None else parse_broker_list(broker)
    told: dict[str, Any] = {}
    lifted = Lifted()
    async with connect() as admin:
        results: dict[int, KafkaError | None] = dict.fromkeys(brokers)
        if broker is None:
            results |= await admin.replication_quotas.set_rate(replication_quota)
        else:
            results |= await admin.replication_quotas.bootstrap(brokers, replication_quota)
        with report.printed_at_end(told, as_json=as_json):
            told |= report.rates_json(results, replication_quota)
            if wait:
                await _wait_in_sync(admin, brokers, replication_quota, failed=any(results.values()))
                results = dict.fromkeys(brokers)
                lifted = await admin.replication_quotas.clear()
                told |= report.rates_json(results, replication_quota)
                told["throttles"] = report.lifted_json(lifted)
    if not as_json:
        report.print_lifted(lifted)
        for node, error in results.items():
            outcome = f"{shown(replication_quota)}/s" if error is None else f"not changed: {error}"
            typer.echo(f"broker {node}: {outcome}", err=True)
    if not results:
        print_message(
            "error",
            "no broker has a throttle of kafkaclient, and no throttled move is under way: nothing "
            "was changed. `kafkaclient reassign execute --additional` throttles a move",
        )
    if not results or any(results.values()) or lifted.failures:
        raise typer.Exit(FAILED)


@app.command()
@on_cluster
async def clear(
    connect: Connect,
    *,
    all_: Annotated[bool, "Also delete throttles that other tools set."] = False,
    now: Annotated[
        bool, "Also remove throttles of moves under way, which are then unthrottled."
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove the throttles of kafkaclient that no move needs any more, in the whole cluster, and
    restore the values that they replaced. Moves under way keep their throttles.

    Example:

    - `kafkaclient throttle clear`
    """
    if all_:
        confirm("Delete all replication throttles, also of other tools?", yes=yes)
    elif now:
        confirm("Remove throttles also from moves under way?", yes=yes)
    async with connect() as admin:
        lifted = await admin.replication_quotas.clear(everyone=all_, keep_needed=not now)
    if as_json:
        print_json(report.lifted_json(lifted))
    else:
        report.print_lifted(lifted)
        if lifted == Lifted():
            typer.echo("there was nothing to remove", err=True)
    if lifted.failures:
        raise typer.Exit(FAILED)


async def _wait_in_sync(admin: Admin, brokers: list[int], quota: int, *, failed: bool) -> None:
    """Wait until brokers are in sync. If quotas ``failed``, set them when the brokers are up."""
    printed, printed_at = -1, -inf
    easing = asyncio.create_task(admin.replication_quotas.ease_arrivals(brokers))
    try:
        while behind := await admin.replication_quotas.behind(brokers):
            if failed:
                failed = bool(await admin.replication_quotas.bootstrap(brokers, quota))
            now = time.monotonic()
            if len(behind) != printed or now - printed_at >= report.LINE_EVERY_S:
                printed, printed_at = len(behind), now
                lags = [lag for lag in behind.values() if lag is not None]
                lag = f"{sum(lags):,} records" if len(lags) == printed else "not known"
                typer.echo(f"{printed} partitions are not in sync, lag {lag}", err=True)
            await asyncio.sleep(_CHECK_EVERY_S)
    except (asyncio.CancelledError, KafkaError):
        typer.echo(
            "the throttles stay; `kafkaclient throttle clear` removes them when the brokers are "
            "in sync",
            err=True,
        )
        raise
    finally:
        easing.cancel()
        await asyncio.wait({easing})
