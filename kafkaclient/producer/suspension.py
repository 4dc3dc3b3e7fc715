"""A coroutine for modules that mypyc compiles, whose own coroutines must not wait.

Where mypyc's code waits, it passes a cancellation on by ``throw(type, value, traceback)``. Python
has deprecated that since 3.12: with warnings as errors the cancelled call raised DeprecationWarning
(mypy 2.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


async def wait_between(
    begin: Callable[[], asyncio.Future[None] | None],
    end: Callable[[asyncio.Future[None]], object],
) -> None:
    """Wait for the future that ``begin()`` returns, then call ``end`` with it, also when the wait
    is cancelled. There is nothing to wait for if ``begin()`` returns None."""
    future = begin()
    if future is None:
        return
    try:
        await future
    finally:
        end(future)
