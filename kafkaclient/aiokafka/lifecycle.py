"""What both drop-ins do with their event loop: they belong to one, and end in it if dropped."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Never, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import Consumer, Producer

__all__ = ["LoopBound"]

_stopping: set[asyncio.Task[Any]] = set()
"""Tasks that stop dropped clients; event loops keep only weak references to tasks."""


class LoopBound(ABC):
    """A client of one event loop. It warns if it is dropped without ``stop``, and is stopped."""

    # Class-level defaults: __del__ also runs when __init__ raised.
    _closed: bool | None = None
    _source_traceback: traceback.StackSummary | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop | None, api_version: str | None) -> None:
        if loop is not None:
            warnings.warn(
                "The `loop` parameter has been deprecated since 0.7.1 "
                "and will be removed in a future release.",
                DeprecationWarning,
                stacklevel=3,
            )
        self._loop = loop or _running_loop()
        if self._loop.get_debug():
            self._source_traceback = traceback.extract_stack(sys._getframe(2))
        if api_version is not None:
            warnings.warn(
                "The `api_version` parameter has been deprecated since 0.13.0. "
                "It is now a no-op and will be removed in a future release. ",
                DeprecationWarning,
                stacklevel=3,
            )

    @abstractmethod
    def _native(self) -> Producer | Consumer:
        """The client of this package."""

    def __reduce_ex__(self, protocol: object) -> Never:
        name = type(self).__name__
        raise TypeError(f"an {name} cannot be copied or pickled: it has connections")

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if self._closed is not False:
            return
        name = next(kind.__name__ for kind in type(self).__mro__ if kind.__module__ in _PUBLIC)
        _warn(f"Unclosed {name} {self!r}", ResourceWarning, source=self)
        what = name.removeprefix("AIOKafka").lower()
        context: dict[str, Any] = {what: self, "message": f"Unclosed {name}"}
        if self._source_traceback is not None:
            context["source_traceback"] = self._source_traceback
        self._loop.call_exception_handler(context)
        # The garbage collector may run in any thread. With a closed loop nothing is open.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_stop_in_background, self._native())

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    def _check_loop(self) -> None:
        assert self._loop is asyncio.get_running_loop(), (
            "Please create objects with the same loop as running with"
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


_PUBLIC = ("kafkaclient.aiokafka.producer", "kafkaclient.aiokafka.consumer")


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "The object should be created within an async function or provide loop directly."
        ) from None


def _stop_in_background(client: Producer | Consumer) -> None:
    task = asyncio.get_running_loop().create_task(client.stop(), name="kafkaclient-stop")
    _stopping.add(task)
    task.add_done_callback(_stopping.discard)
