"""An event loop on a thread of its own, for code that Spark calls and that must block."""

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
    """Runs coroutines for the thread that made it, one event loop for all of them.

    Connections stay alive, and requests go on, while that thread is elsewhere: in Spark, or waiting
    for rows. A context manager; at its end what still runs is cancelled.
    """

    def __init__(self, name: str) -> None:
        self._started = threading.Event()
        self._factory = loop_factory()  # here, where the caller hears if uvloop is broken
        # A daemon: a worker that Spark takes down must not wait for it.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, or its exception, when it has ended; cancelled if this thread is
        interrupted while it waits."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def feed(self, items: Iterable[S], take: Callable[[S], Coroutine[Any, Any, None]]) -> None:
        """Have each item taken, one after the other, each while this thread gets the next. Raises
        what ``items`` or ``take`` raise; nothing is taken after that."""
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
        """The items, each awaited while the one before it is worked on. When it has ended, early
        or not, nothing of ``items`` runs any more."""
        ahead = self.run(_begun(items))
        try:
            while True:
                found, ahead = self.run(_turn(ahead, items))
                if found is None:
                    return
                yield found
        finally:
            self.run(_ended(ahead))

    def close(self) -> None:
        """Cancel what runs, and end the thread. Calling it again does nothing."""
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


async def _begun(items: AsyncIterator[T]) -> asyncio.Task[T | None]:
    return asyncio.create_task(_next(items))


async def _turn(
    ahead: asyncio.Task[T | None], items: AsyncIterator[T]
) -> tuple[T | None, asyncio.Task[T | None]]:
    found = await ahead
    return found, asyncio.create_task(_next(items))


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # seen: whoever stops early does not ask for it


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)
