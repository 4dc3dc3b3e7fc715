"""TLS contexts and credentials of a client, and explanations if its security protocol is wrong."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafkaclient.errors import AuthenticationError, SslAuthenticationError
from kafkaclient.net.authentication import Session, authenticate, demanded_mechanisms
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.net.tls_failures import is_tls

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config.security import SecurityOptions
    from kafkaclient.net.connection import Connection
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.net.sasl.login import Login
    from kafkaclient.net.sasl.mechanisms import Mechanism
    from kafkaclient.net.tls import TlsContexts


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
    def token_provider(self) -> str | None:
        """The name of the provider that :meth:`mechanism` waits for; None if it never waits."""
        return None if self._login is None else self._login.token_provider

    def missing_token(self) -> str | None:
        """Why :meth:`mechanism` waits or has failed, if that is for a token; None otherwise."""
        return None if self._login is None else self._login.missing_token()

    async def mechanism(self) -> Mechanism | None:
        """The mechanism for a new connection, None without SASL. Waits for a token with
        OAUTHBEARER, and raises the errors of the token provider."""
        return None if self._login is None else await self._login.mechanism()

    async def authenticate(
        self, connection: Connection, mechanism: Mechanism | None
    ) -> Session | None:
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
        return Session(connection, self._login, lifetime, clock=self._clock, rng=self._rng)

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
    from kafkaclient.net.sasl.login import Login  # noqa: PLC0415

    return Login(options, wall_clock)
