"""What the commands that look after a cluster share: how they reach it, ask, and print."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from kafkaclient.admin import Admin, FileLimits
from kafkaclient.cli.properties import read_properties
from kafkaclient.cli.run import FAILED, run_command, stderr_console, stdout_console
from kafkaclient.errors import ConfigError, PolicyViolationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence

__all__ = [
    "EXIT_STATUS",
    "OVER_LIMIT",
    "AsJson",
    "Bootstrap",
    "CommandConfig",
    "IgnoreLimits",
    "LimitsFile",
    "Yes",
    "check_directory",
    "cluster",
    "confirm",
    "pairs",
    "print_json",
    "print_table",
    "run_admin",
    "write_file",
]

T = TypeVar("T")

OVER_LIMIT = 3
"""Exit status when partition limits are exceeded, or stand against a request."""

EXIT_STATUS = (
    "Exit status: 0 done, 1 failed, 2 wrong use, 3 partition limits (or a policy of the cluster) "
    "do not allow it."
)

_CLIENT_ID = "kafkaclient-admin"
# Java's tools ignore what is not for them; a file made for a consumer may hold these.
_SERIALIZERS = frozenset({"key.serializer", "value.serializer"})

Bootstrap = Annotated[
    str | None,
    typer.Option(help="host:port[,host:port...] of brokers; goes before --command-config."),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(help="Properties file with options: security.protocol and so on."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", "--force", "-y", help="Do not ask.")]
LimitsFile = Annotated[
    Path | None,
    typer.Option(help="Partition limits are kept in this file, not in the cluster."),
]
IgnoreLimits = Annotated[bool, typer.Option("--ignore-limits", help="Heed no partition limits.")]


@asynccontextmanager
async def cluster(
    bootstrap_server: str | None,
    command_config: Path | None,
    *,
    limits_file: Path | None = None,
    ignore_limits: bool = False,
) -> AsyncIterator[Admin]:
    """A running admin client for the flags that every such command has."""
    config: dict[str, object] = {"client.id": _CLIENT_ID}
    if command_config is not None:
        given = read_properties(command_config)
        config |= {name: value for name, value in given.items() if name not in _SERIALIZERS}
    if bootstrap_server is not None:
        config["bootstrap.servers"] = bootstrap_server
    if "bootstrap.servers" not in config:
        raise ConfigError(
            "no brokers to connect to: give --bootstrap-server host:port, or bootstrap.servers in "
            "--command-config"
        )
    if ignore_limits and limits_file is not None:
        raise ConfigError("--limits-file and --ignore-limits: give one of them")
    if ignore_limits:
        admin = Admin(config, limits=None)
    elif limits_file is not None:
        admin = Admin(config, limits=FileLimits(limits_file))
    else:
        admin = Admin(config)
    async with admin:
        yield admin


def run_admin(main: Coroutine[Any, Any, T]) -> T:
    """:func:`run_command`, with an exit status of its own for partition limits."""

    async def told() -> T | PolicyViolationError:
        try:
            return await main
        except PolicyViolationError as error:
            return error

    result = run_command(told())
    if isinstance(result, PolicyViolationError):
        stderr_console().print(f"[red]error:[/] {escape(str(result))}", soft_wrap=True)
        raise typer.Exit(OVER_LIMIT)
    return result


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone; without a terminal to ask on, refuse."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nothing was done: there is nobody to ask; give --yes")
    if not typer.confirm(question, err=True):
        stderr_console().print("nothing was done")
        raise typer.Exit(FAILED)


def check_directory(file: Path | None) -> Path | None:
    """Refuse, before anything is done, a file to be written whose directory does not exist. The
    callback of an option."""
    if file is not None and not file.parent.is_dir():
        raise typer.BadParameter(
            f"there is no directory {file.parent}; create it, or name another file"
        )
    return file


def write_file(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error


def pairs(words: Sequence[str] | None, flag: str) -> dict[str, str]:
    """``name=value`` words, several joined by commas as Kafka's tools take them; a value with
    commas stands in square brackets: ``a=[1,2],b=3``."""
    found: dict[str, str] = {}
    for word in words or ():
        for pair in _split(word):
            name, equals, value = pair.partition("=")
            name, value = name.strip(), value.strip()
            if not equals or not name:
                raise ConfigError(f"{flag} takes NAME=VALUE, not {pair!r}")
            if name in found:
                raise ConfigError(f"{flag} {name} is given twice")
            found[name] = value[1:-1] if value[:1] == "[" and value[-1:] == "]" else value
    return found


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


def print_json(value: object) -> None:
    typer.echo(json.dumps(value))


def print_table(
    columns: Mapping[str, str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """``columns``: header -> "right", or anything else for left."""
    console = stdout_console()
    if title is not None:
        console.print(title, markup=False, soft_wrap=True)
    table = Table()
    for header, justify in columns.items():
        table.add_column(header, justify="right" if justify == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    console.print(table)
