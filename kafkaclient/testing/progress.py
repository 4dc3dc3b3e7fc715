"""Shows the progress of a download on stderr: a bar on a terminal, else a few plain lines."""

from __future__ import annotations

import sys
import threading
from typing import Protocol, Self, TextIO

__all__ = ["Progress", "default_progress"]


class Progress(Protocol):
    """Receives the number of downloaded bytes. Several threads may call it."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def advance(self, size: int) -> None: ...


def default_progress(title: str, total: int) -> Progress:
    """A rich bar if stderr is a terminal and rich is installed, else plain lines."""
    if sys.stderr.isatty():
        try:
            return _bar(title, total)
        except ImportError:
            pass
    return _Lines(title, total, sys.stderr)


def _bar(title: str, total: int) -> Progress:
    import rich.console  # noqa: PLC0415 - rich is an extra, and slow to import
    import rich.progress  # noqa: PLC0415

    console = rich.console.Console(stderr=True)
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.DownloadColumn(),
        rich.progress.TransferSpeedColumn(),
    )

    class Bar:
        def __init__(self) -> None:
            self._progress = rich.progress.Progress(*columns, console=console)
            self._task = self._progress.add_task(title, total=total)

        def __enter__(self) -> Self:
            self._progress.start()
            return self

        def __exit__(self, *_: object) -> None:
            self._progress.stop()

        def advance(self, size: int) -> None:
            self._progress.advance(self._task, size)

    return Bar()


class _Lines:
    """Writes a line at the start, at each quarter and at the end."""

    def __init__(self, title: str, total: int, stream: TextIO) -> None:
        self._title = title
        self._total = total
        self._stream = stream
        self._done = 0
        self._quarters = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._write(f"{self._title}, {self._total / 1e6:.0f} MB")
        return self

    def __exit__(self, *_: object) -> None:
        return

    def advance(self, size: int) -> None:
        with self._lock:
            self._done += size
            quarters = 4 * self._done // self._total
            if quarters > self._quarters:
                self._quarters = quarters
                self._write(f"{self._title}, {25 * quarters} %")

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()
