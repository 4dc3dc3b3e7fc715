"""Serves a fake cluster over TCP, in the caller's event loop or in one on a thread of its own."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_Class = TypeVar("_Class", bound=type)


class Served(Protocol):
    """A fake cluster, as :class:`Serving` uses it."""

    _thread: ServingThread | None

    def _open_ports(self) -> None: ...

    async def _close_ports(self) -> None: ...


S = TypeVar("S", bound=Served)


class Serving(Generic[S]):
    """The result of :meth:`FakeCluster.serve`, for one ``async with`` or ``with``."""

    def __init__(self, cluster: S) -> None:
        self._cluster = cluster

    async def __aenter__(self) -> S:
        self._cluster._open_ports()
        return self._cluster

    async def __aexit__(self, *_: object) -> None:
        await self._cluster._close_ports()

    def __enter__(self) -> S:
        thread = ServingThread()
        try:
            thread.call(self._cluster._open_ports)
        except BaseException:
            thread.stop()
            raise
        self._cluster._thread = thread
        return self._cluster

    def __exit__(self, *_: object) -> None:
        thread, self._cluster._thread = self._cluster._thread, None
        assert thread is not None
        try:
            asyncio.run_coroutine_threadsafe(self._cluster._close_ports(), thread.loop).result()
        finally:
            thread.stop()


class _RealTimeLoop(asyncio.SelectorEventLoop):
    """Timers go on when a test has replaced ``time.monotonic``: a class attribute is not replaced
    with it."""

    _clock = staticmethod(time.monotonic)

    def time(self) -> float:
        return self._clock()


class ServingThread:
    """An event loop on a thread."""

    def __init__(self) -> None:
        self.loop = _RealTimeLoop()
        self._thread = threading.Thread(target=self._run, name="fake-kafka", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], T]) -> T:
        """The function's result, from the thread. Do not call it in the thread itself."""
        done: Future[T] = Future()

        async def run() -> None:
            try:
                done.set_result(function())
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                done.set_exception(error)

        asyncio.run_coroutine_threadsafe(run(), self.loop)
        return done.result()

    def stop(self) -> None:
        """End the loop and the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def runs_in_its_thread(cluster: _Class) -> _Class:
    """Class decorator: the public methods may be called in any thread. While the cluster is served
    by a :class:`ServingThread`, they run in that thread."""
    for name, method in list(vars(cluster).items()):
        usual = inspect.isfunction(method) and not inspect.iscoroutinefunction(method)
        if usual and not name.startswith("_"):
            setattr(cluster, name, _dispatched(method))
    return cluster


def _dispatched(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Served, *args: Any, **options: Any) -> Any:
        thread = self._thread
        if thread is None or thread.is_current():
            return method(self, *args, **options)
        return thread.call(lambda: method(self, *args, **options))

    return call
