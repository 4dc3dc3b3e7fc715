"""``kafkaclient throttle``: quotas of replication, shown, changed, removed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from kafkaclient.admin.reassign.estimate import shown
from kafkaclient.admin.reassign.plan import parse_broker_list
from kafkaclient.cli import reassign_report as report
from kafkaclient.cli.admin import (
    AsJson,
    Bootstrap,
    CommandConfig,
    Yes,
    cluster,
    confirm,
    print_json,
    run_admin,
)
from kafkaclient.cli.run import FAILED, stderr_console
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.admin import Admin, Lifted, Throttles
    from kafkaclient.errors import KafkaError

__all__ = ["app"]

app = typer.Typer(
    help="Quotas of replication between brokers (KIP-73).\n\n"
    "`kafkaclient reassign execute` sets and removes them by itself; here they are changed while "
    "it runs, set for brokers that have much to catch up with, and removed when something was left "
    "behind.\n\n"
    "Examples: `kafkaclient throttle show`, `kafkaclient throttle set --replication-quota "
    "50000000`, `kafkaclient throttle clear`.\n\n"
    "Exit status: 0 done, 1 failed, 2 wrong use.",
    no_args_is_help=True,
)

_LOOK_EVERY_S = 1.0


@app.command()
def show(
    *,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show what is throttled, and whether kafkaclient did it.

    Example: `kafkaclient throttle show --json`
    """

    async def run() -> Throttles:
        async with cluster(bootstrap_server, command_config) as admin:
            return await admin.replication_quotas.describe()

    found = run_admin(run())
    if as_json:
        print_json(report.throttles_json(found))
    else:
        report.print_throttles(found)


@app.command("set")
def set_(
    *,
    replication_quota: Annotated[
        int,
        typer.Option("--replication-quota", "--throttle", min=0, help="Bytes per second."),
    ],
    broker: Annotated[
        str | None,
        typer.Option(
            help="Throttle all that these brokers (as in 3,4) have to catch up with. Without it: "
            "another quota for the moves under way."
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="With --broker: until they have caught up; then remove it."),
    ] = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
) -> None:
    """Change the quota of moves under way; or, with `--broker`, throttle brokers that are about to
    start empty, or have been away for long (KIP-73's bootstrapping broker).

    A broker that is down gets its own quota when it is back, if this waits for it; what is sent to
    it is bounded from the start.

    Examples: `kafkaclient throttle set --replication-quota 50000000`, `kafkaclient throttle set
    --broker 3 --replication-quota 50000000 --wait`
    """

    async def run() -> Mapping[int, KafkaError | None]:
        async with cluster(bootstrap_server, command_config) as admin:
            if broker is None:
                if wait:
                    raise ConfigError("--wait goes with --broker")
                return await admin.replication_quotas.set_rate(replication_quota)
            brokers = parse_broker_list(broker)
            missing = await admin.replication_quotas.bootstrap(brokers, replication_quota)
            if wait:
                try:
                    await _caught_up(admin, brokers, replication_quota, missing)
                except asyncio.CancelledError:
                    stderr_console().print(
                        "the throttles stay; `kafkaclient throttle clear` removes them when the "
                        "brokers have caught up",
                        soft_wrap=True,
                    )
                    raise
                report.print_lifted(await admin.replication_quotas.clear())
                return {}
            return {**dict.fromkeys(brokers), **missing}

    results = run_admin(run())
    console = stderr_console()
    for node, error in results.items():
        told = f"{shown(replication_quota)}/s" if error is None else f"not changed: {error}"
        console.print(f"broker {node}: {told}", markup=False, soft_wrap=True)
    if broker is None and not results:
        console.print("no broker has a throttle of kafkaclient: nothing is changed")
    if any(error is not None for error in results.values()):
        raise typer.Exit(FAILED)


@app.command()
def clear(
    *,
    all_: Annotated[
        bool, typer.Option("--all", help="Delete throttles that others set, too.")
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Also those of moves under way, which then go unbounded.")
    ] = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Remove the throttles that kafkaclient set and left behind, in the whole cluster, and bring
    back what was there before. Moves under way keep theirs.

    Example: `kafkaclient throttle clear`
    """

    async def run() -> Lifted:
        async with cluster(bootstrap_server, command_config) as admin:
            if all_:
                confirm("Delete all throttles of replication, whoever set them?", yes=yes)
            elif now:
                confirm("Remove throttles also from moves under way?", yes=yes)
            return await admin.replication_quotas.clear(everyone=all_, keep_needed=not now)

    lifted = run_admin(run())
    if as_json:
        print_json(report.lifted_json(lifted))
    else:
        report.print_lifted(lifted)
        if not (lifted.topics or lifted.brokers or lifted.needed_topics or lifted.failures):
            stderr_console().print("there was nothing to remove")
    if lifted.failures:
        raise typer.Exit(FAILED)


async def _caught_up(
    admin: Admin, brokers: list[int], quota: int, missing: dict[int, KafkaError]
) -> None:
    """Wait until brokers are in sync; those that come back get their quota."""
    console = stderr_console()
    told = -1
    easing = asyncio.create_task(admin.replication_quotas.ease_arrivals(brokers))
    try:
        while behind := await admin.replication_quotas.behind(brokers):
            if missing:
                missing = await admin.replication_quotas.bootstrap(brokers, quota)
            if len(behind) != told:
                told = len(behind)
                console.print(f"{told} partitions have not caught up", markup=False)
            await asyncio.sleep(_LOOK_EVERY_S)
    finally:
        easing.cancel()
        await asyncio.wait({easing})
