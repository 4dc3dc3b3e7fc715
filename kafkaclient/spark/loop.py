"""An event loop on its own thread, for blocking code that Spark calls."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kafkaclient.event_loop import loop_factory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable

S = TypeVar("S")
T = TypeVar("T")


class LoopThread:
    """Runs coroutines for a blocking thread, all in one event loop.

    Connections stay alive and requests continue while the calling thread does something else. A
    context manager: at its end, running coroutines are cancelled.
    """

    def __init__(self, name: str) -> None:
        self._loop = (loop_factory() or asyncio.new_event_loop)()
        # A daemon thread: a worker that Spark ends must not wait for it.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result or exception. Interrupting this thread cancels the coroutine."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def feed(self, items: Iterable[S], take: Callable[[S], Coroutine[Any, Any, None]]) -> None:
        """Await ``take(item)`` for each item in order, while this thread gets the next item. Raises
        the errors of ``items`` and ``take``; no item is taken after an error."""
        taking: Future[None] = Future()
        taking.set_result(None)
        try:
            for item in items:
                taking.result()
                taking = asyncio.run_coroutine_threadsafe(take(item), self._loop)
            taking.result()
        except BaseException:
            taking.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Generator[T]:
        """The items; the next one is awaited while the caller uses the current one. After the
        iteration, complete or not, ``items`` is no longer running."""
        ahead: asyncio.Future[T | None] | None = None

        async def take_and_start_next() -> T | None:
            nonlocal ahead
            found = await ahead if ahead is not None else None
            ahead = asyncio.ensure_future(anext(items, None))
            return found

        self.run(take_and_start_next())
        try:
            while (found := self.run(take_and_start_next())) is not None:
                yield found
        finally:
            self.run(_cancel(ahead))

    def close(self) -> None:
        """Cancel what runs, and end the thread. May be called again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _cancel(task: asyncio.Future[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
