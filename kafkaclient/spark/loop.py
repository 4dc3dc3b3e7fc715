"""An event loop on its own thread, for blocking code that Spark calls."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kafkaclient.event_loop import loop_factory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
    from concurrent.futures import Future

__all__ = ["LoopThread"]

S = TypeVar("S")
T = TypeVar("T")


class LoopThread:
    """Runs coroutines for a blocking thread, all in one event loop.

    Connections stay alive and requests continue while the calling thread does something else. A
    context manager: at its end, running coroutines are cancelled.
    """

    def __init__(self, name: str) -> None:
        self._started = threading.Event()
        self._factory = loop_factory()  # here, so that the caller gets the error of a broken uvloop
        # A daemon thread: a worker that Spark ends must not wait for it.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._started.wait()

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
        taking: Future[None] | None = None
        try:
            for item in items:
                if taking is not None:
                    taking.result()
                taking = asyncio.run_coroutine_threadsafe(take(item), self._loop)
            if taking is not None:
                taking.result()
        except BaseException:
            if taking is not None:
                taking.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items; the next one is awaited while the caller uses the current one. After the
        iteration, complete or not, ``items`` is no longer running."""
        ahead = self.run(_start_next(items))
        try:
            while True:
                found, ahead = self.run(_take_and_start_next(ahead, items))
                if found is None:
                    return
                yield found
        finally:
            self.run(_cancel(ahead))

    def close(self) -> None:
        """Cancel what runs, and end the thread. May be called again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=self._factory) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._started.set()
        await self._end.wait()


async def _start_next(items: AsyncIterator[T]) -> asyncio.Future[T | None]:
    return asyncio.ensure_future(anext(items, None))


async def _take_and_start_next(
    ahead: asyncio.Future[T | None], items: AsyncIterator[T]
) -> tuple[T | None, asyncio.Future[T | None]]:
    return await ahead, await _start_next(items)


async def _cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # marks the exception as retrieved
