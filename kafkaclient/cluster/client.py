"""What producer, reader and admin client share: the end of a client that was not closed, and the
error of a start that took too long."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

from kafkaclient.errors import BootstrapError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterable

    from kafkaclient.config.kinds import Address, Limit

_ending: set[asyncio.Task[object]] = set()
"""Tasks that close dropped clients; event loops keep only weak references to tasks."""


def close_dropped(
    client: object,
    what: str,
    loop: asyncio.AbstractEventLoop,
    close: Callable[[], Coroutine[None, None, object]],
    _warn: Callable[..., None] = warnings.warn,
) -> None:
    """Warn of a client that was dropped without being closed, and close it in the background while
    its ``loop`` runs. Called by ``__del__``; ``what`` is the client's name for the message."""
    _warn(
        f"unclosed {what}: it was dropped without stop() or close(), which async with calls",
        ResourceWarning,
        source=client,
    )

    def begin() -> None:
        task = loop.create_task(close(), name="kafkaclient-stop")
        _ending.add(task)
        task.add_done_callback(_ending.discard)

    # The garbage collector may run in any thread. With a closed loop nothing is open.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(begin)


def bootstrap_error(
    servers: Iterable[Address],
    limit: Limit,
    cause: BaseException | str | None,
    missing_token: str | None,
) -> BootstrapError:
    """The error of a start that took too long. ``cause``: the last failure, or what the servers
    have not done yet. ``missing_token``: why there was no token."""
    listed = ", ".join(f"{host}:{port}" for host, port in servers)
    if missing_token is not None:
        return BootstrapError(
            f"no login to a bootstrap server ({listed}) within {limit}: {missing_token}. Check the "
            "token provider: its credentials, and the address of its identity provider. If it "
            "needs more time, raise the limit"
        )
    return BootstrapError(
        f"no bootstrap server ({listed}) answered within {limit}: {cause or 'no connection yet'}. "
        "Check the addresses, that brokers run there, and that the network allows connections to "
        "them"
    )
