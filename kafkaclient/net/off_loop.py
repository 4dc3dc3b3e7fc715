"""Runs a blocking call in a thread, one at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkaclient.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_threads = DaemonThreads()


class OffLoop(Generic[T]):
    """Runs one blocking call at a time, in a thread of its own.

    A caller that comes while a call runs waits for this call, even if the call's first caller has
    been cancelled. So a call that hangs occupies one thread, however often its result is requested
    again. Picklable, without the running call.
    """

    def __init__(self) -> None:
        self._running: asyncio.Future[T] | None = None

    def __reduce__(self) -> tuple[type[OffLoop[T]], tuple[()]]:
        return type(self), ()

    async def run(self, call: Callable[[], T]) -> T:
        """The result of ``call``; raises its exceptions, and RuntimeError for StopIteration."""
        loop, running = asyncio.get_running_loop(), self._running
        if running is None or running.done() or running.get_loop() is not loop:
            self._running = running = loop.run_in_executor(_threads, _checked, call)
            running.add_done_callback(_retrieve)
        return await asyncio.shield(running)


def _checked(call: Callable[[], T]) -> T:
    try:
        return call()
    except StopIteration as error:  # asyncio's futures refuse it
        raise RuntimeError("StopIteration was raised") from error


def _retrieve(call: asyncio.Future[T]) -> None:
    """Retrieve the exception: all callers may have been cancelled."""
    if not call.cancelled():
        call.exception()
