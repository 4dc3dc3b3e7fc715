"""What the commands of the admin client share: a started client, confirming."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

import kafkaclient.admin
from kafkaclient.broker_errors import ErrorCode, denied
from kafkaclient.cli.connection import AsJson, given_of, with_connection
from kafkaclient.cli.output import (
    FAILED,
    exit_on_signals,
    joined,
    print_json,
    print_message,
    print_table,
    run_command,
)
from kafkaclient.errors import ConfigError, PolicyViolationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from kafkaclient.admin import Admin
    from kafkaclient.cli.connection import ConnectionOptions


# --- What the commands of the admin client share: a started client, confirming --------------------

OVER_LIMIT = 3  # exit status if partition limits are exceeded, or do not allow a request

if TYPE_CHECKING:
    Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[Admin]]
else:
    Connect = Callable  # what typer reads: the help needs no client
"""``async with connect(limits_file=None, ignore_limits=False) as admin``: a started client. With
``new_file=True`` the file of limits can be missing."""


def on_cluster(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A command from a coroutine function, whose first argument is a :data:`Connect`.

    The command gets the options for the connection. It checks what it can before it connects. It
    fails as :func:`run_command` does, but with the exit status :data:`OVER_LIMIT` if partition
    limits or a policy do not allow the request.
    """

    async def main(connect: Connect, options: dict[str, Any]) -> None:
        try:
            await command(connect, **options)
        except PolicyViolationError as error:
            print_message("error", error)
            raise typer.Exit(OVER_LIMIT) from None

    @wraps(command)
    def run(connection: ConnectionOptions, **options: Any) -> None:
        run_command(main(partial(_connected, connection), options))

    run.__signature__ = inspect.signature(command, eval_str=True)  # type: ignore[attr-defined]
    return with_connection(run)


@asynccontextmanager
async def _connected(
    connection: ConnectionOptions,
    *,
    limits_file: Path | None = None,
    ignore_limits: bool = False,
    new_file: bool = False,
) -> AsyncIterator[Admin]:
    given_of({"--limits-file": limits_file, "--ignore-limits": ignore_limits})
    arguments: dict[str, Any] = {"limits": None if ignore_limits else "topic"}
    if limits_file is not None:
        limits = arguments["limits"] = kafkaclient.admin.FileLimits(limits_file)
        if not new_file or await asyncio.to_thread(limits_file.exists):
            await limits.read()  # raises ConfigError before a broker is asked
    async with connection.admin(**arguments) as admin:
        yield admin


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation, unless ``yes``. Raises ConfigError if stdin is not a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{question} Nothing was done: confirming needs a terminal; without one give --yes"
        )
    with exit_on_signals():  # the event loop stands still while the prompt reads
        confirmed = typer.confirm(question, err=True)
    if not confirmed:
        typer.echo("nothing was done", err=True)
        raise typer.Exit(FAILED)


# --- ``kafkaclient cluster describe``: the brokers of any cluster ---------------------------------


@on_cluster
async def describe(connect: Connect, *, as_json: AsJson = False) -> None:
    """Show the brokers of any Kafka cluster, their partitions, and the controllers. A broker that
    is down is shown if it has replicas.

    Example:

    - `kafkaclient cluster describe -b localhost:9092`
    """
    async with connect() as admin:
        found = await admin.describe_cluster()
    if as_json:
        print_json(asdict(found) | {"brokers": [broker._asdict() for broker in found.brokers]})
        return
    controllers = found.controllers or ()
    roles = dict.fromkeys(controllers, "yes") | {found.controller_id: "active"}
    rows: list[tuple[object, ...]] = [
        (
            broker.node_id,
            f"{broker.host}:{broker.port}",
            broker.rack or "",
            roles.get(broker.node_id, ""),
            broker.leaders,
            broker.replicas,
            broker.out_of_sync or "",
        )
        for broker in found.brokers
    ]
    rows += [
        (node, "down", "", roles.get(node, ""), 0, replicas, "")
        for node, replicas in found.missing_brokers.items()
    ]
    print_table(
        ("broker", "address", "rack", "controller", "leads", "replicas", "behind"),
        sorted(rows),
        right=("broker", "leads", "replicas", "behind"),
        title=f"cluster {found.cluster_id}",
    )
    offline = found.offline_partitions
    without = f", {offline} of them without a leader" if offline else ""
    typer.echo(f"{found.topics} topics, {found.partitions} partitions{without}")
    if found.controllers is None:
        advice = denied(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Describe")
        print_message("note", f"the controllers are not known: {advice}")
    elsewhere = set(controllers) - {row[0] for row in rows}
    if elsewhere:
        known = joined(sorted(elsewhere))
        typer.echo(f"controllers that are not brokers: {known}; active: {found.controller_id}")
