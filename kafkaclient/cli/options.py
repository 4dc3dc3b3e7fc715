"""Options of commands, declared by a type and a help text."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def described(command: F) -> F:
    """Let typer read each ``name: Annotated[TYPE, "help text"]`` as an option of that name.

    The option of a bool has no ``--no-`` form. Other parameters stay as they are.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = [_option(parameter) for parameter in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _option(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, *metadata = get_args(parameter.annotation) or (None,)
    if not (metadata and isinstance(metadata[0], str)):
        return parameter
    names = [f"--{parameter.name.rstrip('_').replace('_', '-')}"] if kind is bool else []
    option: Any = Annotated[kind, typer.Option(*names, help=metadata[0])]
    return parameter.replace(annotation=option)
