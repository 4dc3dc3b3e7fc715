"""Lets concurrent callers share one request."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable
    from typing import Any

T = TypeVar("T")


class Shared(Generic[T]):
    """Callers with the same key share the call that is under way. It is cancelled when its last
    caller is."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._callers: Counter[asyncio.Task[T]] = Counter()

    async def __call__(self, key: Hashable, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of ``call()``, or of the call under way for ``key``."""
        task = self._under_way.get(key)
        if task is None or task.done():
            task = self._under_way[key] = asyncio.create_task(call(), name="kafkaclient-shared")
        self._callers[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._callers[task] -= 1
            if self._under_way.get(key) is task and (task.done() or not self._callers[task]):
                del self._under_way[key]
                task.cancel()
            if not self._callers[task]:
                del self._callers[task]
