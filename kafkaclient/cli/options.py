"""The options that several commands share, and options declared by a type and a help text."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer

from kafkaclient.cli.profile_file import profile_names

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

BOOTSTRAP_VARIABLE = "KAFKACLIENT_BOOTSTRAP"
PROFILE_VARIABLE = "KAFKACLIENT_PROFILE"

_CONNECTION = "Connection"


def _above_zero(seconds: float | None) -> float | None:
    # A minimum would be shown in a column that is narrow on a terminal with 80 columns.
    if seconds is not None and seconds <= 0:
        raise typer.BadParameter(f"{seconds:g} is not above 0")
    return seconds


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="Brokers to connect to first, joined by commas.",
        rich_help_panel=_CONNECTION,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Properties file with client options such as security.protocol.",
        rich_help_panel=_CONNECTION,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        envvar=PROFILE_VARIABLE,
        help="A connection of your profiles; `kafkaclient profiles` lists them.",
        autocompletion=profile_names,
        rich_help_panel=_CONNECTION,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="How long to wait for the cluster: to connect, and for each request. "
        "[default: 10 and 60]",
        callback=_above_zero,
        rich_help_panel=_CONNECTION,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", "--force", "-y", help="Do not ask for confirmation.")]
LimitsFile = Annotated[Path | None, "File of partition limits, in place of those in the cluster."]
IgnoreLimits = Annotated[bool, "Ignore the partition limits."]
ValidateOnly = Annotated[bool, "Check whether the request is valid; change nothing."]


def described(command: F) -> F:
    """Let typer read each ``name: Annotated[TYPE, "help text"]`` as an option of that name.

    The option of a bool has no ``--no-`` form. Other parameters stay as they are.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = [_option(parameter) for parameter in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def output_file(file: Path | None) -> Path | None:
    """The callback of an option for an output file: refuses a file whose directory is missing."""
    if file is not None and not file.parent.is_dir():
        raise typer.BadParameter(
            f"there is no directory {file.parent}; create it, or name another file"
        )
    return file


def _option(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, *metadata = get_args(parameter.annotation) or (None,)
    if not (metadata and isinstance(metadata[0], str)):
        return parameter
    names = [f"--{parameter.name.rstrip('_').replace('_', '-')}"] if kind is bool else []
    option: Any = Annotated[kind, typer.Option(*names, help=metadata[0])]
    return parameter.replace(annotation=option)
