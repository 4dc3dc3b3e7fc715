"""The guard around code of the application."""

from __future__ import annotations

import asyncio

from kafkaclient.errors import safe_repr


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
