"""What the commands of the admin client share: connecting, confirming, writing files."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from kafkaclient.admin import Admin, FileLimits
from kafkaclient.cli.options import described
from kafkaclient.cli.output import print_message
from kafkaclient.cli.properties import client_config
from kafkaclient.cli.run import FAILED, exit_on_signals, run_command
from kafkaclient.errors import ConfigError, PolicyViolationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

OVER_LIMIT = 3  # exit status if partition limits are exceeded, or do not allow a request

Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[Admin]]
"""``async with connect(limits_file=None, ignore_limits=False) as admin``: a started client."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", "--force", "-y", help="Do not ask for confirmation.")]
LimitsFile = Annotated[Path | None, "File of partition limits, in place of those in the cluster."]
IgnoreLimits = Annotated[bool, "Ignore the partition limits."]
ValidateOnly = Annotated[
    bool,
    "Check whether the request is valid; change nothing.",
]
_CONNECTION_OPTIONS = {
    "bootstrap_server": Annotated[
        str | None, "host:port[,host:port...] of brokers; overrides --command-config."
    ],
    "command_config": Annotated[
        Path | None, "Properties file with options such as security.protocol."
    ],
}


def on_cluster(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A command from a coroutine function, whose first argument is a :data:`Connect`.

    The command gets the options for the connection. It fails as :func:`run_command` does, but with
    the exit status :data:`OVER_LIMIT` if partition limits or a policy do not allow the request.
    """

    async def main(connect: Connect, options: dict[str, Any]) -> None:
        try:
            await command(connect, **options)
        except PolicyViolationError as error:
            print_message("error", error)
            raise typer.Exit(OVER_LIMIT) from None

    @wraps(command)
    def run(*, bootstrap_server: str | None, command_config: Path | None, **options: Any) -> None:
        run_command(main(partial(_connected, bootstrap_server, command_config), options))

    signature = inspect.signature(command, eval_str=True)
    _connect, *own = signature.parameters.values()
    added = (
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _CONNECTION_OPTIONS.items()
    )
    run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return described(run)


@asynccontextmanager
async def _connected(
    bootstrap_server: str | None,
    command_config: Path | None,
    *,
    limits_file: Path | None = None,
    ignore_limits: bool = False,
) -> AsyncIterator[Admin]:
    config = client_config("kafkaclient-admin", bootstrap_server, command_config)
    if ignore_limits and limits_file is not None:
        raise ConfigError("--limits-file and --ignore-limits: give one of them")
    options: dict[str, Any] = {}
    if ignore_limits or limits_file is not None:
        options["limits"] = None if limits_file is None else FileLimits(limits_file)
    async with Admin(config, **options) as admin:
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


def check_directory(file: Path | None) -> Path | None:
    """The callback of an option for an output file: refuses a file whose directory is missing."""
    if file is not None and not file.parent.is_dir():
        raise typer.BadParameter(
            f"there is no directory {file.parent}; create it, or name another file"
        )
    return file


def write_file(file: Path, text: str) -> None:
    """Write a text file. Raises ConfigError if that fails."""
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
