"""What commands print: consoles, messages on stderr, tables and JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rich.progress import ProgressColumn

WIDE = 200  # columns of a pipe for tables with long lines
_PIPE_WIDTH = 160

_LABEL_STYLES = {"error": "red", "warning": "yellow", "note": "yellow"}


def stdout_console(pipe_width: int = _PIPE_WIDTH) -> Console:
    """A console on the current standard output; tables in a pipe are not cut off. Names of clusters
    are no markup: what has a style is a :class:`~rich.text.Text`."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = pipe_width
    return console


def stderr_console() -> Console:
    """A console on the current standard error, otherwise as :func:`stdout_console`."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_message(label: str, text: object) -> None:
    """Print ``label: text`` on stderr in one line; the label is in color."""
    style = _LABEL_STYLES.get(label, "red")
    stderr_console().print(Text.assemble((f"{label}:", style), f" {text}"), soft_wrap=True)


def print_json(value: object) -> None:
    typer.echo(json.dumps(value))


def picked(value: object, *names: str) -> dict[str, Any]:
    """The attributes of these names, as a JSON object."""
    return {name: getattr(value, name) for name in names}


def joined(values: Iterable[object]) -> str:
    """The values, joined by commas."""
    return ",".join(map(str, values))


def print_table(
    columns: Iterable[str],
    rows: Iterable[Iterable[object]],
    *,
    right: Collection[str] = (),
    title: str | None = None,
) -> None:
    """Print a table on stdout; the columns in ``right`` are right-aligned."""
    if title is not None:
        typer.echo(title)
    table = Table()
    for header in columns:
        table.add_column(header, justify="right" if header in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else str(cell) for cell in row))
    stdout_console().print(table)


def plain_table(title: str | None, columns: Iterable[str], *, left: Collection[str] = ()) -> Table:
    """A table without lines for figures, right-aligned except the columns in ``left``."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=None,
        pad_edge=False,
    )
    for header in columns:
        table.add_column(header, justify="left" if header in left else "right")
    return table


def progress_bar(console: Console, *columns: ProgressColumn, auto_refresh: bool = True) -> Progress:
    """A progress bar, shown only on a terminal and removed at the end."""
    return Progress(
        *columns,
        console=console,
        auto_refresh=auto_refresh,
        transient=True,
        # On a terminal the lines of stdout go above the bar; in a pipe they stay unchanged.
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=False,
        disable=not console.is_terminal,
    )
