"""SASL on a connection, again before its session ends (KIP-368); a client's TLS and credentials."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    SaslAuthenticationError,
    SslAuthenticationError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.net.mechanisms import SaslRefusedError
from kafkaclient.net.off_loop import OffLoop
from kafkaclient.net.tls_failures import is_tls
from kafkaclient.time_limit import time_limit
from kafkaclient.wire.api_versions import SaslAuthenticateCall, SaslHandshakeCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config.security import SecurityOptions
    from kafkaclient.net.connection import Connection
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.net.login import Login
    from kafkaclient.net.mechanisms import Mechanism
    from kafkaclient.net.tls import TlsContexts


_log = logging.getLogger(__name__)


# A session is renewed after a random share of its lifetime, so that connections of the same age are
# not renewed together (Java's SaslClientAuthenticator).
_RENEW_FROM, _RENEW_TO = 0.85, 0.95

# A broker rejects a SaslHandshake that comes within a second of the last one (Java's KafkaChannel).
_LEAST_PAUSE_S = 1.05

_MOST_STEPS = 10

# A token provider that fails at a renewal is asked at equal pauses: about 20 times until the
# session ends, and not more often than every 0.1 s.
_MOST_RETRIES = 20
_LEAST_RETRY_PAUSE_S = 0.1

_NO_MECHANISM = ""


async def authenticate(connection: Connection, mechanism: Mechanism) -> float:
    """Authenticate the connection; returns its session lifetime in seconds (0: no limit).

    Raises :class:`~kafkaclient.errors.AuthenticationError` if the broker or the client refuses, and
    what :meth:`Connection.call` raises. After an error the connection cannot be used.
    """
    node, name = connection.node, mechanism.name
    offer = await connection.call(SaslHandshakeCall(name), urgent=True)
    if offer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(offer.mechanisms) or "none"
        raise UnsupportedSaslMechanismError(
            f"{node} does not accept sasl.mechanism={name}; it offers: {offered}"
        )
    if offer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            f"{node} does not want SASL on this listener; give security.protocol=PLAINTEXT or SSL, "
            "or the port of a listener with SASL"
        )
    if offer.error_code:
        raise broker_error(offer.error_code, f"SaslHandshake for {name} to {node}")
    try:
        return await _exchange(connection, mechanism)
    except SaslRefusedError as error:
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
    raise SaslRefusedError("the exchange does not end")


def _refused(node: str, mechanism: str, code: int, said: str | None) -> KafkaError:
    if code != ErrorCode.SASL_AUTHENTICATION_FAILED:
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
    return offer.mechanisms if offer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else None


class SaslSession:
    """The authenticated session of a connection, which is renewed before it ends (KIP-368).

    The messages of a renewal are sent behind the requests in flight. Further requests wait until
    the renewal is complete. ``lifetime`` is in seconds.
    """

    def __init__(
        self,
        connection: Connection,
        login: Login,
        host: str,
        lifetime: float,
        *,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._connection = connection
        self._login = login
        self._host = host
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
        connection = self._connection
        return log_fields(error, broker=connection.node_id, client_id=connection.client_id)

    async def _mechanism(self) -> Mechanism:
        """The mechanism for the renewal; requests a token until the session ends."""
        pause_s = 0.0
        while True:
            try:
                async with time_limit(max(0.0, self._ends_at - self._clock())):
                    return await self._login.mechanism(self._host)
            except KafkaError as error:  # before TimeoutError: the provider's own time limit
                left = self._ends_at - self._clock()
                level = logging.DEBUG if pause_s else logging.WARNING  # once per session
                pause_s = pause_s or max(left / _MOST_RETRIES, _LEAST_RETRY_PAUSE_S)
                if not error.retriable or left <= pause_s:
                    raise
                text = "%s; retrying, %.3g s are left"
                _log.log(level, text, error, left, extra=self._log_fields(error))
                await asyncio.sleep(pause_s)
            except TimeoutError:
                raise BrokerConnectionError(
                    f"the session with {self._connection.node} has ended: another one needs "
                    f"{self._login.awaited} in time"
                ) from None


class Security:
    """One per client; raises :class:`~kafkaclient.errors.ConfigError` for certificates and keys
    that cannot be used. ``wall_clock`` returns seconds since the epoch."""

    def __init__(
        self,
        options: SecurityOptions,
        *,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
    ) -> None:
        self._protocol = options.security_protocol
        self._clock = clock or asyncio.get_running_loop().time
        self._rng = rng or Random()
        self.tls: TlsContexts | None = _tls(options) if options.uses_tls else None
        self._login = _login(options, wall_clock) if options.uses_sasl else None

    @property
    def with_sasl(self) -> bool:
        """Whether connections are authenticated with SASL."""
        return self._login is not None

    @property
    def awaited(self) -> str | None:
        """What :meth:`mechanism` waits for, and from whom; None if it never waits."""
        return None if self._login is None else self._login.awaited

    def missing_token(self) -> str | None:
        """Why :meth:`mechanism` waits or has failed, if that is for a token or ticket; or None."""
        return None if self._login is None else self._login.missing_token()

    async def mechanism(self, host: str) -> Mechanism | None:
        """The mechanism for a new connection to this host, None without SASL. Waits for a token or
        a ticket, and raises the errors of what gives them."""
        return None if self._login is None else await self._login.mechanism(host)

    async def authenticate(
        self, connection: Connection, mechanism: Mechanism | None, host: str
    ) -> SaslSession | None:
        """Authenticate a connection after ApiVersions; returns its session, or None without SASL.

        Raises :class:`~kafkaclient.errors.AuthenticationError`, and what :meth:`Connection.call`
        raises.
        """
        if self._login is None or mechanism is None:
            return None
        try:
            lifetime = await authenticate(connection, mechanism)
        except AuthenticationError as error:
            self._login.refused(error)
            raise
        return SaslSession(
            connection, self._login, host, lifetime, clock=self._clock, rng=self._rng
        )

    async def explain_silence(self, name: str, host: str, port: int, dialer: Dialer) -> None:
        """Raise SslAuthenticationError if a broker did not answer because it expects TLS."""
        if self.tls is not None or not isinstance(dialer, TcpDialer):
            return
        if await is_tls(partial(dialer.dial_plain, host, port)):
            secure = "SASL_SSL" if self.with_sasl else "SSL"
            raise SslAuthenticationError(
                f"{name} expects TLS on this listener, and security.protocol is {self._protocol}; "
                f"give security.protocol={secure}, or the port of another listener"
            )

    async def explain_loss(self, connection: Connection) -> None:
        """Raise AuthenticationError if a broker closes connections because it demands SASL."""
        if self.with_sasl:
            return
        offered = await demanded_mechanisms(connection)
        if offered is not None:
            secure = "SASL_SSL" if self.tls is not None else "SASL_PLAINTEXT"
            raise AuthenticationError(
                f"{connection.node} wants clients to authenticate, and security.protocol is "
                f"{self._protocol}; give security.protocol={secure} and one of its mechanisms: "
                f"{', '.join(offered)}"
            )


# Imported here: clients without TLS or SASL start faster.


def _tls(options: SecurityOptions) -> TlsContexts:
    from kafkaclient.net.tls import TlsContexts  # noqa: PLC0415

    return TlsContexts(options)


def _login(options: SecurityOptions, wall_clock: Callable[[], float]) -> Login:
    from kafkaclient.net.login import Login  # noqa: PLC0415

    return Login(options, wall_clock)
