"""How a command runs its coroutine, and what the shell is told when it fails."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from kafkaclient.errors import ConfigError, InvalidTopicError, KafkaError
from kafkaclient.event_loop import loop_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "TERMINATED",
    "USAGE",
    "WIDE",
    "run_blocking",
    "run_command",
    "stderr_console",
    "stdout_console",
]

T = TypeVar("T")

WIDE = 200
"""Columns of what has long lines."""
_PIPE_WIDTH = 160

FAILED = 1
USAGE = 2
INTERRUPTED = 128 + signal.SIGINT  # as shells report it
TERMINATED = 128 + signal.SIGTERM

_WRONG_USE = (ConfigError, InvalidTopicError)


def stdout_console(pipe_width: int = _PIPE_WIDTH) -> Console:
    """A console on the process's present standard output; tables in a pipe are not cut off."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = pipe_width
    return console


def stderr_console() -> Console:
    """A console on the process's present standard error."""
    return Console(stderr=True, highlight=False)


def run_command(main: Coroutine[Any, Any, T]) -> T:
    """Run a command on uvloop when it is installed, else on asyncio's own loop.

    Ends the process with a one-line reason instead of a traceback: 1 for an error of Kafka or of
    the system, 2 for a wrong option, or a name that no topic can have; 130 after Ctrl-C and 143
    after SIGTERM, when the coroutine has cleaned up.
    """
    with _failures_told(), asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_cancelled_by_sigterm(main))


def run_blocking(main: Callable[[], T]) -> T:
    """Run a command that needs no event loop; ends the process as :func:`run_command` does, but
    for SIGTERM, which it leaves to the system."""
    with _failures_told():
        return main()


@contextmanager
def _failures_told() -> Iterator[None]:
    console = stderr_console()
    try:
        yield
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/]")
        raise typer.Exit(INTERRUPTED) from None
    except asyncio.CancelledError:
        console.print("[yellow]terminated[/]")
        raise typer.Exit(TERMINATED) from None
    except (KafkaError, OSError) as error:
        console.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(USAGE if isinstance(error, _WRONG_USE) else FAILED) from None


async def _cancelled_by_sigterm(main: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await main
