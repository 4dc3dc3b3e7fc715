"""The page of the command line, written from the typer app."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer.main

from docsite.tables import table
from kafkaclient.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """\
# Command line

Install it with `pip install 'kafkaclient[cli]'`. `kafkaclient COMMAND --help` shows the same in a
terminal.
"""


def page() -> str:
    """The Markdown text: one section a command, one table of its options."""
    command = typer.main.get_command(app)
    context = command.make_context("kafkaclient", [], resilient_parsing=True)
    return "\n".join([_HEAD, *_command(command, context)]).rstrip() + "\n"


def _command(command: Any, context: Any) -> Iterator[str]:
    path = context.command_path
    depth = path.count(" ")
    if depth:
        yield f"{'#' * (depth + 1)} `{path}`\n"
        yield f"{_with_examples(command.help or '', path)}\n"
    else:
        yield f"{command.help}\n"
    is_group = hasattr(command, "list_commands")
    if not is_group:
        yield f"```console\n$ {path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    records = [each.get_help_record(context) for each in command.params if _is_shown(each)]
    if rows := [(f"`{names}`", _words(text)) for names, text in filter(None, records)]:
        yield table(("option", "meaning"), rows)
    for name in command.list_commands(context) if is_group else ():
        child = command.get_command(context, name)
        if not child.hidden:
            inner = type(context)(child, info_name=name, parent=context)
            yield from _command(child, inner)


def _is_shown(parameter: Any) -> bool:
    return not getattr(parameter, "hidden", False) and parameter.name != "help"


def _words(help_text: str) -> str:
    """The help text; typer puts the default and the range in brackets, which could be a link."""
    return re.sub(r"\[([^][]*(?:\[[^][]*\])?[^][]*)\]$", r"(\1)", help_text)


def _with_examples(help_text: str, path: str) -> str:
    """The help text; a paragraph of examples becomes a block of commands, one a line."""
    paragraphs = help_text.split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        lead, _, rest = paragraph.partition("`")
        if not re.match(r"Examples?\b", lead):
            continue
        commands = re.findall(r"`((?:kafkaclient|\.\.\.) [^`]+)`", f"`{rest}")
        lines = [" ".join(re.sub(r"^\.\.\.", path, each).split()) for each in commands]
        if lines and not re.sub(r"`[^`]+`|[,.\s]|and|or", "", f"`{rest}"):
            block = "\n".join(f"$ {line}" for line in lines)
            paragraphs[number] = f"{lead.strip()}\n\n```console\n{block}\n```"
    return "\n\n".join(paragraphs)
