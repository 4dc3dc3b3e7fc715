"""SASL on a connection: after ApiVersions, and again before the session ends (KIP-368)."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.net.off_loop import OffLoop
from kafkaclient.net.sasl.mechanisms import RefusedError
from kafkaclient.time_limit import time_limit
from kafkaclient.wire.api_versions import SaslAuthenticateCall, SaslHandshakeCall

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kafkaclient.net.connection import Connection
    from kafkaclient.net.sasl.login import Login
    from kafkaclient.net.sasl.mechanisms import Mechanism

_log = logging.getLogger(__name__)

_UNSUPPORTED_MECHANISM = 33
_ILLEGAL_STATE = 34
_AUTHENTICATION_FAILED = 58

# A session is renewed after a random share of its lifetime, so that connections of the same age are
# not renewed together (Java's SaslClientAuthenticator).
_RENEW_FROM, _RENEW_TO = 0.85, 0.95

# A broker rejects a SaslHandshake that comes within a second of the last one (Java's KafkaChannel).
_LEAST_PAUSE_S = 1.05

_MOST_STEPS = 10
_RETRY_SHARE = 0.25
_NO_MECHANISM = ""


async def authenticate(connection: Connection, mechanism: Mechanism) -> float:
    """Authenticate the connection; returns its session lifetime in seconds (0: no limit).

    Raises :class:`~kafkaclient.errors.AuthenticationError` if the broker or the client refuses, and
    what :meth:`Connection.call` raises. After an error the connection cannot be used.
    """
    node, name = connection.node, mechanism.name
    offer = await connection.call(SaslHandshakeCall(name), urgent=True)
    if offer.error_code == _UNSUPPORTED_MECHANISM:
        offered = ", ".join(offer.mechanisms) or "none"
        raise UnsupportedSaslMechanismError(
            f"{node} does not accept sasl.mechanism={name}; it offers: {offered}"
        )
    if offer.error_code == _ILLEGAL_STATE:
        raise AuthenticationError(
            f"{node} does not want SASL on this listener; give security.protocol=PLAINTEXT or SSL, "
            "or the port of a listener with SASL"
        )
    if offer.error_code:
        raise broker_error(offer.error_code, f"SaslHandshake for {name} to {node}")
    try:
        return await _exchange(connection, mechanism)
    except RefusedError as error:
        raise SaslAuthenticationError(f"{name} with {node} failed: {error}") from None


async def _exchange(connection: Connection, mechanism: Mechanism) -> float:
    message = mechanism.first()
    for _ in range(_MOST_STEPS):
        answer = await connection.call(SaslAuthenticateCall(message), urgent=True)
        if answer.error_code:
            raise _refused(connection.node, mechanism.name, answer.error_code, answer.error_message)
        lifetime_s = max(0, answer.session_lifetime_ms) / 1000
        if mechanism.computes:
            next_message = await OffLoop[bytes | None]().run(
                partial(mechanism.answer, answer.challenge)
            )
        else:
            next_message = mechanism.answer(answer.challenge)
        if next_message is None:
            return lifetime_s
        message = next_message
    raise RefusedError("the exchange does not end")


def _refused(node: str, mechanism: str, code: int, said: str | None) -> KafkaError:
    if code != _AUTHENTICATION_FAILED:
        return broker_error(code, f"SaslAuthenticate ({mechanism}) to {node}", said)
    error = SaslAuthenticationError(
        f"{node} refused the credentials ({mechanism}): {said or 'it does not say why'}"
    )
    error.code = code
    return error


async def demanded_mechanisms(connection: Connection) -> tuple[str, ...] | None:
    """The mechanisms of a listener that demands SASL; None if the listener does not demand it.

    The request names a mechanism that does not exist. Raises what :meth:`Connection.call` raises.
    """
    try:
        offer = await connection.call(SaslHandshakeCall(_NO_MECHANISM))
    except UnsupportedVersionError:
        return None
    return offer.mechanisms if offer.error_code == _UNSUPPORTED_MECHANISM else None


class Session:
    """The authenticated session of a connection, which is renewed before it ends (KIP-368).

    The messages of a renewal are sent behind the requests in flight. Further requests wait until
    the renewal is complete. ``lifetime`` is in seconds.
    """

    def __init__(
        self,
        connection: Connection,
        login: Login,
        lifetime: float,
        *,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._connection = connection
        self._login = login
        self._clock = clock
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._schedule(lifetime)

    def close(self) -> None:
        """Stop renewing: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _schedule(self, lifetime: float) -> None:
        self._timer = self._task = None
        if lifetime > 0 and not self._connection.closed:
            self._ends_at = self._clock() + lifetime
            delay = lifetime * self._rng.uniform(_RENEW_FROM, _RENEW_TO)
            if delay < _LEAST_PAUSE_S < lifetime:
                delay = _LEAST_PAUSE_S
            self._timer = self._loop.call_later(delay, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._task = self._loop.create_task(
            self._renew(), name=f"authenticate again to {self._connection.node}"
        )

    async def _renew(self) -> None:
        connection = self._connection
        try:
            mechanism = await self._mechanism()
            idle_since = None if connection.in_flight else connection.last_used
            with connection.held():
                lifetime = await authenticate(connection, mechanism)
            if idle_since is not None:
                connection.last_used = idle_since  # a renewal does not count as use
        except KafkaError as error:
            if connection.closed:
                return  # the connection has reported its own error
            self._login.refused(error)
            _log.warning("%s; the connection is closed", error, extra=self._log_fields(error))
            connection.close(error)
        except Exception as error:  # noqa: BLE001 - a session must not end without a message
            _log.exception(
                "authenticating again to %s failed", connection.node, extra=self._log_fields()
            )
            connection.close(AuthenticationError(f"{connection.node}: {type(error).__name__}"))
        else:
            _log.debug("authenticated again to %s, for %.3g s", connection.node, lifetime)
            self._schedule(lifetime)

    def _log_fields(self, error: KafkaError | None = None) -> dict[str, object]:
        return log_fields(error, broker=self._connection.node_id)

    async def _mechanism(self) -> Mechanism:
        """The mechanism for the renewal; requests a token until the session ends."""
        while True:
            try:
                async with time_limit(max(0.0, self._ends_at - self._clock())):
                    return await self._login.mechanism()
            except TimeoutError:
                raise BrokerConnectionError(
                    f"the session with {self._connection.node} has ended: the token provider "
                    f"{self._login.token_provider} returned no token in time"
                ) from None
            except KafkaError as error:
                left = self._ends_at - self._clock()
                if not error.retriable or left <= 0.01:
                    raise
                _log.warning(
                    "%s; retrying, %.3g s are left", error, left, extra=self._log_fields(error)
                )
                await asyncio.sleep(left * _RETRY_SHARE)
