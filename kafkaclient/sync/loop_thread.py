"""An event loop in a thread of its own, for a client whose calls wait in other threads."""

from __future__ import annotations

import asyncio
import atexit
import threading
from asyncio import _get_running_loop
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from kafkaclient.errors import ConsumerStateError
from kafkaclient.net.off_loop import guard
from kafkaclient.time_limit import loop_factory, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

T = TypeVar("T")

_LOOK_S = 1.0  # how often a waiting call looks whether the thread still lives
_EXIT_S = 15.0  # how long the end of the interpreter waits for all threads

_open: WeakSet[LoopThread] = WeakSet()


class LoopThread:
    """Runs coroutines for other threads until :meth:`end`, then ``close()``. The thread is a
    daemon. The interpreter's end calls :meth:`end`, and waits for a limited time."""

    def __init__(self, name: str, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._close = close
        self._ending = asyncio.Event()
        self._failure: BaseException | None = None
        self._is_inherited = False
        self._loop = (loop_factory() or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        _open.add(self)
        guard(self)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. A call that is interrupted (Ctrl-C) cancels it.

        Raises ConsumerStateError if the thread has ended or belongs to another process, or if the
        calling thread runs an event loop, which must not wait.
        """
        future = self._begin(coroutine)
        try:
            while True:
                try:
                    return future.result(_LOOK_S)
                except TimeoutError:
                    if future.done():  # it is the coroutine's
                        raise
                    if not self._thread.is_alive():
                        raise ConsumerStateError("the consumer is closed") from None
        except CancelledError:
            raise ConsumerStateError("the consumer is closed") from None
        finally:
            future.cancel()

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        problem = "the consumer is closed"
        if self._is_inherited:
            problem = "the consumer belongs to the parent process: make another one in this process"
        elif _get_running_loop() is not None:
            problem = (
                "the call waits, and this thread runs an event loop, which would stand still: use "
                "kafkaclient.Consumer in it, or asyncio.to_thread"
            )
        else:
            with suppress(RuntimeError):  # the loop is closed
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        raise ConsumerStateError(problem)

    def end(self, timeout_s: float | None = None, *, wait: bool = True) -> None:
        """Close, and end the thread; raises what ``close()`` raises. ``timeout_s``: how long to
        ``wait`` at most; the thread goes on closing after that."""
        if self._is_inherited or self._loop.is_closed():
            return
        try:
            self._loop.call_soon_threadsafe(self._ending.set)
        except RuntimeError:
            return  # it has ended a moment ago
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
            if self._failure is not None:
                raise self._failure

    def forked(self) -> None:
        """See :class:`~kafkaclient.net.off_loop.Forkable`."""
        self._is_inherited = True
        _inherited.append(self)

    def _work(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        except BaseException as failure:  # noqa: BLE001 - end() raises it
            self._failure = failure

    async def _main(self) -> None:
        await self._ending.wait()
        await self._close()


_inherited: list[LoopThread] = []
"""In a forked child: the parent's threads, kept so that their coroutines are not closed here."""


@atexit.register
def _end_all() -> None:
    ends_at = monotonic() + _EXIT_S
    threads = list(_open)
    for thread in threads:
        thread.end(wait=False)
    for thread in threads:
        thread._thread.join(max(0.0, ends_at - monotonic()))
