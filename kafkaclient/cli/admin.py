"""What the commands of the admin client share: a started client, confirming, writing files."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from kafkaclient.admin import Admin, FileLimits
from kafkaclient.cli.connection import with_connection
from kafkaclient.cli.output import print_message
from kafkaclient.cli.run import FAILED, exit_on_signals, run_command
from kafkaclient.errors import ConfigError, PolicyViolationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from kafkaclient.cli.connection import Connection

OVER_LIMIT = 3  # exit status if partition limits are exceeded, or do not allow a request

Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[Admin]]
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
    def run(connection: Connection, **options: Any) -> None:
        run_command(main(partial(_connected, connection), options))

    run.__signature__ = inspect.signature(command, eval_str=True)  # type: ignore[attr-defined]
    return with_connection(run)


@asynccontextmanager
async def _connected(
    connection: Connection,
    *,
    limits_file: Path | None = None,
    ignore_limits: bool = False,
    new_file: bool = False,
) -> AsyncIterator[Admin]:
    if ignore_limits and limits_file is not None:
        raise ConfigError("--limits-file and --ignore-limits: give one of them")
    arguments: dict[str, Any] = {"limits": None if ignore_limits else "topic"}
    if limits_file is not None:
        limits = arguments["limits"] = FileLimits(limits_file)
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


def write_file(file: Path, text: str) -> None:
    """Write a text file. Raises ConfigError if that fails."""
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
