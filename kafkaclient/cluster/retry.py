"""Repeats a call to the cluster until a broker answers it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkaclient.cluster.waits import Waits

T = TypeVar("T")


async def until_answered(
    attempt: Callable[[], Awaitable[T]],
    before_retry: Callable[[KafkaError, int], Awaitable[None]],
    waits: Waits,
    what: str,
    *,
    silence: str | None = "no answer yet",
) -> T:
    """The result of the first attempt that raises no KafkaError.

    After each failed attempt ``before_retry(error, failures)`` raises the error if another attempt
    cannot help, and waits otherwise. The loop has no time limit: the caller sets one. ``waits``
    tells of it, with ``what`` is waited for. ``silence`` is why it lasts while no attempt has
    failed; None: an answer may well take long.
    """
    failures, why = 0, silence
    with waits.wait(what, lambda: why):
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                failures, why = failures + 1, str(error)
                await before_retry(error, failures)


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set, after a wait of up to ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
