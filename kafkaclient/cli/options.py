"""Options that several commands share, and how properties files and texts become options."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import javaproperties
import typer

from kafkaclient.cli.profiles import profile_names
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


# --- Client options as Kafka's tools take them: ``.properties`` files and ``NAME=VALUE`` ... ---

BOOTSTRAP = "bootstrap.servers"


def read_properties(path: Path) -> dict[str, str]:
    """The options in a Java properties file. Raises :class:`ConfigError` when unreadable."""
    try:
        return javaproperties.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # not UTF-8, or an escape sequence that Java refuses
        raise ConfigError(f"cannot read the options in {path}: {error}") from error


def pairs(words: Iterable[str] | None, flag: str, *, strip: bool = False) -> dict[str, str]:
    """The ``NAME=VALUE`` words of a flag. Raises :class:`ConfigError` for any other word.

    ``strip``: remove spaces around names and values.
    """
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if strip:
            name, value = name.strip(), value.strip()
        if not (name and equals):
            raise ConfigError(f"{flag} takes NAME=VALUE, not {word!r}")
        found[name] = value
    return found


def comma_pairs(words: Iterable[str] | None, flag: str) -> dict[str, str]:
    """As :func:`pairs`, for flags of Kafka's tools that take several pairs, joined by commas.

    A value that has commas is given in square brackets: ``a=[1,2],b=3``. Raises
    :class:`ConfigError` also for a name that is given twice.
    """
    found: dict[str, str] = {}
    for part in (part for word in words or () for part in _split(word)):
        if found and "=" not in part:
            last = list(found)[-1]
            raise ConfigError(
                f"{flag} takes NAME=VALUE, not {part!r}. A value with commas is given in square "
                f"brackets: {last}=[{found[last]},{part}]"
            )
        [(name, value)] = pairs([part], flag, strip=True).items()
        if name in found:
            raise ConfigError(f"{flag} {name} is given twice")
        found[name] = value[1:-1] if value[:1] == "[" and value[-1:] == "]" else value
    return found


def _split(text: str) -> list[str]:
    """The parts between commas that are outside of square brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


# --- The options that several commands share, and options declared by a type and a help ... ---

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
