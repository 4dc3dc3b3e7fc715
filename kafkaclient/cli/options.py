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
        min=0.1,
        help="Seconds to wait for the cluster: to connect, and for each request with its retries. "
        "[default: 10 and 60]",
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

    The option of a bool has no ``--no-`` form. The type of a number with a minimum is shown as N:
    typer's words leave too little room for the names of options on a terminal with 80 columns.
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
    option: Any = metadata[0] if metadata else None
    if not isinstance(option, str):
        if getattr(option, "min", None) is not None and option.metavar is None:
            option.metavar = "N"
        return parameter
    names = [f"--{parameter.name.rstrip('_').replace('_', '-')}"] if kind is bool else []
    annotation: Any = Annotated[kind, typer.Option(*names, help=option)]
    return parameter.replace(annotation=annotation)
