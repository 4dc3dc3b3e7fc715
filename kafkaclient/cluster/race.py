"""Several links, of which the first to be up will do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.errors import AuthenticationError, BrokerConnectionError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkaclient.cluster.link import Link
    from kafkaclient.net.connection import Connection

__all__ = ["first_connection", "raise_refusal"]


async def first_connection(links: Iterable[Link], head_start_s: float) -> Connection:
    """The connection of the first link to be up; they start to dial staggered, in their order.

    Raises AuthenticationError or another error that no retry mends when that is why there is none,
    else BrokerConnectionError with all that was met.
    """
    tried: list[Link] = []
    attempts: set[asyncio.Task[None]] = set()
    for link in links:
        connection = link.connect()
        if connection is None and link.attempt is not None:
            tried.append(link)
            attempts.add(link.attempt)
            connection = await _first_up(tried, attempts, head_start_s)
        if connection is not None:
            return connection
    while attempts:
        connection = await _first_up(tried, attempts, None)
        if connection is not None:
            return connection
    errors = [link.error for link in tried if link.error is not None]
    raise_refusal(errors)
    if errors and not any(error.retriable for error in errors):
        raise errors[0]
    raise BrokerConnectionError(
        f"no broker could be reached; tried {len(tried)}: {'; '.join(map(str, errors))}"
    )


def raise_refusal(errors: Sequence[KafkaError]) -> None:
    """Raise the first failed authentication: what no retry mends comes before what one might."""
    for error in errors:
        if isinstance(error, AuthenticationError):
            raise error.with_traceback(None)


async def _first_up(
    links: Iterable[Link], attempts: set[asyncio.Task[None]], timeout_s: float | None
) -> Connection | None:
    """Wait for an attempt to end, and take it out of the set; a connection if one is up now."""
    done, _ = await asyncio.wait(attempts, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    attempts -= done
    return next((link.connection for link in links if link.connection is not None), None)
