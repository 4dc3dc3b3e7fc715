"""Calls that wait for the producer's thread."""

from __future__ import annotations

import math
from asyncio import _get_running_loop
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.errors import ProducerClosedError, ProducerStateError

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

NOT_RESPONDING = "the producer's thread does not respond"


def within(call: Future[T], seconds: float | None) -> T:
    """The result of a call in the producer's thread. After ``seconds`` the call is cancelled, and
    TimeoutError raised."""
    try:
        return call.result(seconds)
    except TimeoutError:
        call.cancel()
        raise
    except CancelledError:  # the thread has ended
        raise ProducerClosedError("nothing was done: the SyncProducer is closed") from None


def check_may_wait(what: str, timeout: float | None = None) -> None:
    """Raise ProducerStateError if the calling thread must not wait, TypeError if ``timeout`` is not
    a number, ValueError if it is NaN."""
    if _get_running_loop() is not None:
        raise ProducerStateError(
            f"{what}: the call waits, and this thread runs an event loop, which would stand still; "
            "use kafkaclient.Producer in it, or asyncio.to_thread"
        )
    if timeout is not None:
        if not isinstance(timeout, (int, float)):
            raise TypeError(f"{what}: timeout must be a number of seconds, not {timeout!r}")
        if math.isnan(timeout):
            raise ValueError(f"{what}: timeout must be a number of seconds, not NaN")
