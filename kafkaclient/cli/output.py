"""What commands print, and how a command's coroutine is run: errors, Ctrl-C, exit statuses."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from kafkaclient.errors import ConfigError, InvalidTopicError, KafkaError
from kafkaclient.time_limit import loop_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator

    from rich.progress import ProgressColumn


# --- What commands print: consoles, messages on stderr, tables and JSON ---------------------------

WIDE = 200  # columns of a pipe for tables with long lines
_PIPE_WIDTH = 160

_SHOWN_AFTER_S = 0.3  # what is over sooner shows no progress
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


class _Now:
    """A text that rich asks for whenever it draws."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __rich__(self) -> Text:
        return Text(self._text())


@contextmanager
def shown_meanwhile(text: Callable[[], str]) -> Iterator[None]:
    """Show the present text on a terminal (stderr) while the block runs, if it takes long."""
    console = stderr_console()
    status = console.status(_Now(text))
    loop = asyncio.get_running_loop()
    timer = loop.call_later(_SHOWN_AFTER_S, status.start) if console.is_terminal else None
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        status.stop()


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


# --- Runs a command, with or without an event loop, and turns signals -----------------------------

T = TypeVar("T")

FAILED = 1
USAGE = 2
INTERRUPTED = 128 + signal.SIGINT  # as shells report it
TERMINATED = 128 + signal.SIGTERM

_BY_SIGNAL: dict[int, tuple[int, str]] = {
    signal.SIGINT: (INTERRUPTED, "interrupted"),
    signal.SIGTERM: (TERMINATED, "terminated"),
}
_IMPATIENT = 3  # signals
_WRONG_USE = (ConfigError, InvalidTopicError)


def run_command(main: Coroutine[Any, Any, T]) -> T:
    """Run a command on uvloop if it is installed, else on asyncio's own loop.

    An expected error ends the process with one line on stderr instead of a traceback. The exit
    status is 1 for an error of Kafka or of the system, 2 for a wrong option or an invalid topic
    name, 130 after Ctrl-C and 143 after SIGTERM. The coroutine cleans up before.
    """
    with _exit_statuses(), asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_cancelled_by_sigterm(main))


def run_blocking(main: Callable[[], T]) -> T:
    """Run a command without an event loop, otherwise as :func:`run_command`.

    SIGTERM ends the process as usual.
    """
    with _exit_statuses():
        return main()


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command at once, while it blocks: at a prompt, or until other
    processes have done their work."""

    def end(number: int, _frame: object) -> None:
        stderr_console().print()
        raise _ended_by(number)

    with _handled_by(end):
        yield


@contextmanager
def stop_noted() -> Iterator[threading.Event]:
    """The first Ctrl-C or SIGTERM sets the event, and interrupts nothing: a call of Spark's JVM
    that is interrupted prints stack traces. It ends the command after the block. The third
    signal ends the command at once. The second does not, because one Ctrl-C may arrive twice: from
    the terminal, and from a program that started the command."""
    noted = threading.Event()
    received: list[int] = []

    def note(number: int, _: object) -> None:
        received.append(number)
        noted.set()
        if len(received) >= _IMPATIENT:
            raise _ended_by(number)

    with _handled_by(note):
        yield noted
    if received:
        raise KeyboardInterrupt if received[0] == signal.SIGINT else asyncio.CancelledError


@contextmanager
def _handled_by(handle: Callable[[int, object], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call the function."""
    before = {number: signal.signal(number, handle) for number in _BY_SIGNAL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _exit_statuses() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise _ended_by(signal.SIGINT) from None
    except asyncio.CancelledError:
        raise _ended_by(signal.SIGTERM) from None
    except BrokenPipeError:
        raise  # the reader of stdout has ended
    except OSError as error:
        named = error.filename is not None and error.strerror
        print_message("error", f"{error.filename}: {error.strerror}" if named else error)
        raise typer.Exit(FAILED) from None
    except KafkaError as error:
        print_message("error", error)
        raise typer.Exit(USAGE if isinstance(error, _WRONG_USE) else FAILED) from None


def _ended_by(number: int) -> typer.Exit:
    """Say which signal has ended the command; returns the exit."""
    status, word = _BY_SIGNAL[number]
    stderr_console().print(Text(word, "yellow"))
    return typer.Exit(status)


async def _cancelled_by_sigterm(main: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await main
