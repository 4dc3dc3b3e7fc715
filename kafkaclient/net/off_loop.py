"""Blocking calls in threads, and what a forked child may not use."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar
from weakref import WeakSet

from kafkaclient.time_limit import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Callable


# --- Releases sockets and records in a forked child -----------------------------------------------
# A forked child has copies of the parent's connections and of the records that the parent will
# send. Each owner of such copies is called once in the child, before other code runs there.
# Nothing is checked in the parent, or while records are sent.


class Forkable(Protocol):
    """An object that only the process that made it may use."""

    def forked(self) -> None:
        """Release everything: this is a child process. Must neither raise nor call an event loop,
        whose thread may not exist here."""
        ...


_guarded: WeakSet[Forkable] = WeakSet()


def guard(owner: Forkable) -> None:
    """Call :meth:`Forkable.forked` in every child that is forked while ``owner`` exists."""
    _guarded.add(owner)


def _in_child() -> None:
    for owner in list(_guarded):
        owner.forked()


os.register_at_fork(after_in_child=_in_child)


# --- Runs a blocking call in a thread, one at a time ----------------------------------------------

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
        return await asyncio.shield(self.begin(call))

    def begin(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """The outcome of ``call``, or of the one that runs. The caller must not cancel it."""
        loop, running = asyncio.get_running_loop(), self._running
        if running is None or running.done() or running.get_loop() is not loop:
            self._running = running = loop.run_in_executor(_threads, _checked, call)
            running.add_done_callback(_retrieve)
        return running


def _checked(call: Callable[[], T]) -> T:
    try:
        return call()
    except StopIteration as error:  # asyncio's futures refuse it
        raise RuntimeError("StopIteration was raised") from error


def _retrieve(call: asyncio.Future[T]) -> None:
    """Retrieve the exception: all callers may have been cancelled."""
    if not call.cancelled():
        call.exception()
