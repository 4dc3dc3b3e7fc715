"""The guard around code of the application, and a coroutine that begins at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.errors import safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable


# --- The guard at every place where the producer calls code of the application --------------------


def text_of_user_error(error: BaseException) -> str:
    """The text of an exception that application code raised, for an error that replaces it. A
    KeyboardInterrupt or SystemExit is raised again from the event loop.

    Call it in ``except BaseException``, where no record may be lost half way.
    """
    loop = asyncio._get_running_loop()
    if isinstance(error, (KeyboardInterrupt, SystemExit)) and loop is not None:
        loop.call_soon(_raise, error)
    return safe_repr(error)


def _raise(error: BaseException) -> None:
    raise error


# --- a coroutine for methods that are called at once and awaited later ----------------------------


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
