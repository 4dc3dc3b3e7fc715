"""Threads for calls that may hang. They do not keep a program from ending, and they leave the event
loop's default executor to the application."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from threading import Thread
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
P = ParamSpec("P")


class DaemonThreads(Executor):
    """Runs each call in a daemon thread of its own.

    A ThreadPoolExecutor joins its threads when the program ends. A thread that waits for a server
    that does not answer would keep the program from ending. The event loop's default executor has
    few threads, and an application can occupy all of them.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - it is raised where the future is awaited
                future.set_exception(error)
            else:
                future.set_result(result)

        Thread(target=run, name="kafkaclient-call", daemon=True).start()
        return future
