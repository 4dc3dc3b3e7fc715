"""When the metadata is requested next, and how long the answer may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kafkaclient.config import ClientConfig

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
        self.failures = 0
        """How many requests in a row have failed."""
        self.is_full = False
        """Whether the request that has begun fetches all topics in use."""
        self.refreshed_at = float("-inf")
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
