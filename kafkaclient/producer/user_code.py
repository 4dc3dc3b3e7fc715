"""The guard at every place where the producer calls code of the application in its own work."""

from __future__ import annotations

import asyncio

from kafkaclient.errors import safe_repr


def contained(error: BaseException) -> str:
    """The text of an exception of the application's code, which the caller has caught and does not
    raise again: no record may be lost half way. Call it in ``except BaseException``.

    KeyboardInterrupt and SystemExit ask the program to end: the event loop raises them soon.
    """
    loop = asyncio._get_running_loop()
    if isinstance(error, (KeyboardInterrupt, SystemExit)) and loop is not None:
        loop.call_soon(_raise, error)
    return safe_repr(error)


def _raise(error: BaseException) -> None:
    raise error
