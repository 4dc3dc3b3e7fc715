"""When a client may connect to a broker again, and how long the attempt may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.cluster.backoff import exponential_s
from kafkaclient.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kafkaclient.config import ClientConfig
    from kafkaclient.errors import KafkaError

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
