"""What an experiment shows on stderr while it runs: lines, and a bar for the progress."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Protocol

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from kafkaclient.cli.live_view import OwnProducerView, with_view

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

    from rich.console import Console
    from rich.live import Live

__all__ = ["ConsoleWatcher", "Watcher"]

_REFRESH_S = 0.25
_LOOK_EVERY = 4  # refreshes: a view changes each second
_LINE_EVERY_S = 10.0


class Watcher(Protocol):
    """Shows the user what an experiment is doing."""

    def say(self, text: str) -> None:
        """Show a line: something begins, or has ended."""

    def producer_view(self) -> OwnProducerView | None:
        """A view for :meth:`working`; None if it would not be seen."""

    def working(
        self,
        text: str,
        total: int,
        done: Callable[[], int],
        view: OwnProducerView | None = None,
    ) -> AbstractAsyncContextManager[object]:
        """Show, while the block lasts, that ``done()`` of ``total`` are done, below the view of a
        producer."""

    def running(
        self, text: str, number: int, total: int, expected_s: float
    ) -> AbstractAsyncContextManager[object]:
        """Show, while the block lasts, run ``number`` of ``total``.

        A run takes about ``expected_s`` seconds.
        """


class ConsoleWatcher:
    """Writes lines to a console, and draws a bar; without a terminal, lines instead of the bar."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.perf_counter()
        self._task = TaskID(0)
        self._taken: list[float] = []
        """Seconds that each run so far took."""

    def say(self, text: str) -> None:
        elapsed = time.perf_counter() - self._start
        self._console.print(
            Text.assemble((f"{elapsed:5.0f} s", "dim"), f"  {text}"), soft_wrap=True
        )

    def producer_view(self) -> OwnProducerView | None:
        return OwnProducerView() if self._console.is_terminal else None

    @asynccontextmanager
    async def working(
        self,
        text: str,
        total: int,
        done: Callable[[], int],
        view: OwnProducerView | None = None,
    ) -> AsyncIterator[None]:
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            # A thread that draws would compete with the load for the interpreter.
            auto_refresh=False,
            transient=True,
            disable=not self._console.is_terminal,
        )
        task = progress.add_task(text, total=total)
        if self._console.is_terminal:
            screen = progress if view is None else with_view(progress, view)
            follow = self._draw(screen, progress, task, done, view)
        else:
            self.say(text)
            screen = progress
            follow = self._report(text, total, done)
        with screen:
            async with _meanwhile(follow):
                yield

    async def _draw(
        self,
        screen: Progress | Live,
        progress: Progress,
        task: TaskID,
        done: Callable[[], int],
        view: OwnProducerView | None,
    ) -> None:
        for number in count():
            progress.update(task, completed=done())
            if view is not None and number % _LOOK_EVERY == 0:
                view.refresh()
            screen.refresh()
            await asyncio.sleep(_REFRESH_S)

    async def _report(self, text: str, total: int, done: Callable[[], int]) -> None:
        while True:
            await asyncio.sleep(_LINE_EVERY_S)
            self.say(f"{text}: {done():,} of {total:,}")

    @asynccontextmanager
    async def running(
        self, text: str, number: int, total: int, expected_s: float
    ) -> AsyncIterator[None]:
        if not self._console.is_terminal:
            self.say(f"{number}/{total} {text}")
            yield
            return
        if number == 1:
            self._taken = []
        started = time.perf_counter()
        with self._bar(text, total) as progress:
            async with _meanwhile(self._follow(progress, number, total, expected_s)):
                yield
        self._taken.append(time.perf_counter() - started)

    @contextmanager
    def _bar(self, text: str, total: int) -> Iterator[Progress]:
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[place]}"),
            TextColumn("{task.fields[left]}", style="dim"),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._task = progress.add_task(text, total=total, place="", left="")
        with progress:
            yield progress

    async def _follow(self, progress: Progress, number: int, total: int, expected_s: float) -> None:
        started = time.perf_counter()
        mean = sum(self._taken) / len(self._taken) if self._taken else expected_s
        while True:
            elapsed = time.perf_counter() - started
            # A run that takes longer than expected stays at 98 %.
            done = min(elapsed / mean, 0.98)
            progress.update(
                self._task,
                completed=number - 1 + done,
                place=f"{number}/{total}",
                left=f"{_duration((total - number + 1 - done) * mean)} left",
                refresh=True,
            )
            await asyncio.sleep(_REFRESH_S)


@asynccontextmanager
async def _meanwhile(follow: Coroutine[object, object, None]) -> AsyncIterator[None]:
    follower = asyncio.create_task(follow)
    try:
        yield
    finally:
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes}:{rest:02}"
