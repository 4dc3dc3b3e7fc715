"""The base class of producer, reader and admin client: ``async with``, and the end of a client that
was not closed."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterable

    from kafkaclient.config.kinds import Address, Limit

from kafkaclient.errors import BootstrapError

_ending: set[asyncio.Task[object]] = set()
"""Tasks that close dropped clients; event loops keep only weak references to tasks."""


class LeftOpen(NamedTuple):
    """How to close a client that was dropped; ``what`` is its name for messages."""

    what: str
    loop: asyncio.AbstractEventLoop
    end: Callable[[], Coroutine[None, None, object]]


class Client:
    """Base class of the clients."""

    async def start(self) -> None:
        raise NotImplementedError

    async def _end(self) -> None:
        """Close the client, at the end of ``async with``."""
        raise NotImplementedError

    def _left_open(self) -> LeftOpen | None:
        """How to close the client; None if nothing is open."""
        return None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        left = self._left_open()
        if left is not None:
            _warn(
                f"unclosed {left.what}: it was dropped without stop() or close(), which async with "
                "calls",
                ResourceWarning,
                source=self,
            )
            # The garbage collector may run in any thread. With a closed loop nothing is open.
            with contextlib.suppress(RuntimeError):
                left.loop.call_soon_threadsafe(_end_in_background, left)


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


def _end_in_background(left: LeftOpen) -> None:
    task = left.loop.create_task(left.end(), name="kafkaclient-stop")
    _ending.add(task)
    task.add_done_callback(_ending.discard)
