"""When to try again: exponential backoff (KIP-580), reconnects, refreshes, the retry loop."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.errors import AuthenticationError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from kafkaclient.cluster.waits import Waits
    from kafkaclient.config import ClientConfig


# --- Exponential backoff with jitter (KIP-580), after Java's ``ExponentialBackoff`` ---------------

_JITTER = 0.2
_MAX_DOUBLINGS = 32


def exponential_s(failures: int, first_s: float, max_s: float, rng: Random) -> float:
    """A pause or time limit in seconds, which doubles with each consecutive failure, and varies
    randomly by 20 %.

    Without failure it is 0. At ``max_s`` it still varies, from 80 % to 100 % (Java's does not), so
    that clients that lost a broker at the same time do not return at the same time.
    """
    if failures <= 0:
        return 0.0
    mean = min(max_s, first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return min(max_s, rng.uniform((1 - _JITTER) * mean, min((1 + _JITTER) * mean, max_s)))


def retry_pause_s(failures: int, config: ClientConfig, rng: Random) -> float:
    """The pause before a retry, from ``retry.backoff.ms`` to ``retry.backoff.max.ms``."""
    first_s, max_s = config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000
    return exponential_s(failures, first_s, max_s, rng)


# --- Repeats a call to the cluster until a broker answers it --------------------------------------

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


UNKNOWN_TOPIC_READS = 5
"""Answers until an unknown topic is an error: brokers learn of a new topic late."""


async def poll(
    read: Callable[[], Awaitable[T]],
    done: Callable[[T], bool],
    pause: Callable[[int], Awaitable[None]],
    max_reads: int | None = None,
) -> T:
    """The first result of ``read()`` for which ``done(result)`` is true, or the result of read
    number ``max_reads``; waits for ``pause(reads)`` in between."""
    for reads in count(1):
        result = await read()
        if done(result) or reads == max_reads:
            break
        await pause(reads)
    return result


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set, after a wait of up to ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


# --- When a client may connect to a broker again, and how long the attempt may take ---------------

_AUTHENTICATION_FACTOR = 10.0
"""The longest pause after failed authentication is ``reconnect.backoff.max.ms`` times this: a
retry rarely helps, and servers lock accounts after many attempts."""


class ReconnectBackoff:
    """Counts the consecutive failures of one connection.

    The pause grows from ``reconnect.backoff.ms`` to ``reconnect.backoff.max.ms``, and the time for
    an attempt from ``socket.connection.setup.timeout.ms`` to its ``.max.ms`` (KIP-601). A
    successful attempt resets the time for an attempt. It does not reset the pause, unlike Java's: a
    broker that accepts connections and drops them would be dialed without a pause. The end of a
    connection resets the pause, if this client closed the connection or if it was up for at least
    ``reconnect.backoff.max.ms``.
    """

    def __init__(self, config: ClientConfig, clock: Callable[[], float], rng: Random) -> None:
        self.failures: int = 0
        """Consecutive failures, of attempts and of connections, until the pause is reset."""
        self.failed_attempts: int = 0
        """Consecutive failed attempts to connect."""
        self._config = config
        self._clock = clock
        self._rng = rng
        self._not_before = 0.0
        self._connected_at = 0.0

    @property
    def pause_s(self) -> float:
        """How long the next attempt has to wait from now on."""
        return max(0.0, self._not_before - self._clock())

    def setup_timeout_s(self) -> float:
        """How long the next attempt may take."""
        first_s = self._config.socket_connection_setup_timeout_ms / 1000
        max_s = self._config.socket_connection_setup_timeout_max_ms / 1000
        return exponential_s(self.failed_attempts + 1, first_s, max_s, self._rng)

    def connected(self) -> None:
        """An attempt has succeeded. The pause is reset later, when the connection ends."""
        self._connected_at = self._clock()
        self.failed_attempts = 0

    def attempt_failed(self, error: KafkaError) -> None:
        self.failed_attempts += 1
        self._count(error)

    def connection_ended(self, error: KafkaError | None) -> bool:
        """Note the end of a connection. Returns whether it counts as a failure. Without ``error``
        this client closed the connection."""
        max_s = self._config.reconnect_backoff_max_ms / 1000
        if error is None or self._clock() - self._connected_at >= max_s:
            self.failures, self._not_before = 0, 0.0
            return False
        self._count(error)
        return True

    def _count(self, error: KafkaError) -> None:
        self.failures += 1
        first_s = self._config.reconnect_backoff_ms / 1000
        max_s = self._config.reconnect_backoff_max_ms / 1000
        if isinstance(error, AuthenticationError):
            first_s, max_s = max_s, max_s * _AUTHENTICATION_FACTOR
        self._not_before = self._clock() + exponential_s(self.failures, first_s, max_s, self._rng)


# --- When the metadata is requested next, and how long the answer may take ------------------------

_FIRST_TIMEOUT_S = 3.0
"""How long the first broker may take to answer. It doubles with each consecutive failure, up to the
request timeout. With the request timeout alone, a paused broker would hide new leaders for 30 s."""

_AGE_JITTER = 0.1  # clients that started at the same time do not refresh at the same time


class RefreshSchedule:
    """The times of full refreshes, which fetch all topics in use, and of the requests between them.

    A full refresh is due after ``metadata.max.age.ms``, or after :meth:`request`. A requested one
    follows the last response after ``retry.backoff.ms`` at the earliest; the pause,
    ``pause_s(count)``, grows to ``retry.backoff.max.ms`` while requests fail or bring no change
    (KIP-580). Times are in the clock's seconds.
    """

    def __init__(self, config: ClientConfig, pause_s: Callable[[int], float], rng: Random) -> None:
        self.failures: int = 0
        """How many requests in a row have failed."""
        self.is_full: bool = False
        """Whether the request that has begun fetches all topics in use."""
        self.refreshed_at: float = float("-inf")
        """When the last full refresh was complete."""
        self._config = config
        self._pause_s = pause_s
        self._rng = rng
        self._reason: str | None = None
        self._begun_for: str | None = None
        """The reason of the request that has begun."""
        self._next_periodic_at = 0.0
        self._not_before = 0.0
        self._answered_at = 0.0
        self._fruitless = 0
        """How many requested refreshes in a row have brought no change."""

    def request(self, reason: str, now: float) -> bool:
        """Request a full refresh; False: it was requested before, and has not begun."""
        if self._reason is not None:
            return False
        self._reason = reason
        if now - self._answered_at > self._config.retry_backoff_max_ms / 1000:
            self._fruitless = 0
        return True

    def due_at(self, retry_at: float | None) -> float:
        """When the next request is due. ``retry_at``: when a topic that a caller waits for is due,
        which does not wait for the pause between refreshes."""
        due = self._not_before
        if self._reason is None:
            due = max(due, self._next_periodic_at)
        if retry_at is not None:
            due = min(due, max(retry_at, self._not_before if self.failures else 0.0))
        return due

    def begin(self, now: float) -> None:
        """The request that was due begins."""
        self.is_full = self._reason is not None or now >= self._next_periodic_at
        self._begun_for, self._reason = self._reason, None

    @property
    def timeout_s(self) -> float:
        """How long a broker may take to answer."""
        limit_s = self._config.request_timeout_ms / 1000
        return min(limit_s, _FIRST_TIMEOUT_S * 2.0 ** min(self.failures, 8))

    def answered(self, now: float) -> None:
        """A response has arrived, possibly one of several."""
        self._answered_at = now

    def succeeded(self, *, changed: bool) -> None:
        """The request that has begun is answered. ``changed``: the answer has brought a change."""
        self.failures = 0
        if not self.is_full:
            return
        now = self.refreshed_at = self._answered_at
        self._fruitless = 0 if changed or self._begun_for is None else self._fruitless + 1
        self._not_before = now + self._pause_s(1 + self._fruitless)
        age = self._rng.uniform(1 - _AGE_JITTER, 1) * self._config.metadata_max_age_ms
        self._next_periodic_at = now + age / 1000

    def failed(self, now: float) -> None:
        """The request that has begun failed; a full refresh is requested again."""
        self.failures += 1
        self._not_before = now + self._pause_s(self.failures)
        if self.is_full and self._reason is None:
            self._reason = self._begun_for or "retry"
