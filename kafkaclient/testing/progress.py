"""Shows the progress of a download on stderr: a bar on a terminal, else a few plain lines."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress


@contextmanager
def show_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a rich bar if stderr is a terminal and rich is installed, else plain lines.

    Yields the function that counts downloaded bytes. Several threads may call it."""
    bar = _bar() if sys.stderr.isatty() else None
    if bar is None:
        yield _lines(title, total)
        return
    with bar:
        yield partial(bar.advance, bar.add_task(title, total=total))


def _bar() -> Progress | None:
    try:
        import rich.console  # noqa: PLC0415 - rich is an extra, and slow to import
        import rich.progress  # noqa: PLC0415
    except ImportError:
        return None
    return rich.progress.Progress(
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.BarColumn(),
        rich.progress.DownloadColumn(),
        rich.progress.TransferSpeedColumn(),
        console=rich.console.Console(stderr=True),
    )


def _lines(title: str, total: int) -> Callable[[int], None]:
    """Writes a line now, and one at each quarter."""
    done = 0
    lock = threading.Lock()

    def advance(size: int) -> None:
        nonlocal done
        with lock:
            before, done = 4 * done // total, done + size
            quarters = 4 * done // total
            if quarters > before:
                sys.stderr.write(f"{title}, {25 * quarters} %\n")

    sys.stderr.write(f"{title}, {total / 1e6:.0f} MB\n")
    return advance
