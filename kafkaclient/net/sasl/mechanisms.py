"""SASL: the login on a connection, the mechanisms' interface, PLAIN and OAUTHBEARER."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from kafkaclient.errors import SaslAuthenticationError
from kafkaclient.net.sasl.oidc import ClientCredentials
from kafkaclient.net.sasl.scram import KeyCache, Scram256, Scram512
from kafkaclient.net.sasl.tokens import TokenSource
from kafkaclient.net.tls import https_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config.security import SecurityOptions
    from kafkaclient.net.sasl.tokens import Token


# --- Makes the mechanism for each authentication, with the credentials of the options. ---

_SCRAM = {kind.name: kind for kind in (Scram256, Scram512)}


class Login:
    """The credentials of one client. ``wall_clock`` returns seconds since the epoch."""

    def __init__(
        self, options: SecurityOptions, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._kind = options.sasl_mechanism
        self._username = options.sasl_username or ""
        self._password = options.sasl_password or ""
        self._keys = KeyCache()
        self._tokens: TokenSource | None = None
        self._offered: Token | None = None
        self._extensions = options.sasl_oauthbearer_extensions or {}
        if self._kind == OAuthBearer.name:
            provider, name = options.sasl_oauth_token_provider, None
            if provider is None:
                provider = ClientCredentials(
                    options.sasl_oauthbearer_token_endpoint_url or "",
                    options.sasl_oauthbearer_client_credentials_client_id or "",
                    options.sasl_oauthbearer_client_credentials_client_secret or "",
                    options.sasl_oauthbearer_scope,
                    context=https_context(options),
                    wall_clock=wall_clock,
                )
                name = f"for OIDC at {provider.where}"
            self._tokens = TokenSource(provider, wall_clock, name)

    async def mechanism(self) -> Mechanism:
        """A new mechanism; waits for a token with OAUTHBEARER, and raises what
        :meth:`TokenSource.get` raises."""
        if self._tokens is not None:
            return OAuthBearer(await self.token())
        if self._kind == Plain.name:
            return Plain(self._username, self._password)
        kind = _SCRAM[self._kind or ""]
        return kind(self._username, self._password, cache=self._keys)

    async def token(self) -> Token:
        """The current OAUTHBEARER token; raises what :meth:`TokenSource.get` raises."""
        assert self._tokens is not None
        self._offered = token = await self._tokens.get()
        return replace(token, extensions={**self._extensions, **token.extensions})

    @property
    def token_provider(self) -> str | None:
        """The name of the provider that :meth:`mechanism` waits for; None without OAUTHBEARER."""
        return None if self._tokens is None else self._tokens.provider

    def missing_token(self) -> str | None:
        """Why there is no token, for messages; None if there is one, or none is needed."""
        return None if self._tokens is None else self._tokens.missing

    def refused(self, error: BaseException) -> None:
        """Authentication has failed: discard the token, so that the next attempt gets another."""
        if self._tokens is not None and isinstance(error, SaslAuthenticationError):
            self._tokens.drop(self._offered)


# --- The interface of SASL mechanisms, and the two simple ones: PLAIN and OAUTHBEARER. ---


class RefusedError(Exception):
    """The broker breaks the mechanism's rules, rejects the client, or cannot prove its identity.
    The message has no secret in it."""


class Mechanism(Protocol):
    """The client's side of one authentication."""

    name: ClassVar[str]
    """The mechanism's name in ``sasl.mechanism``."""
    computes: ClassVar[bool]
    """Whether :meth:`answer` may take milliseconds of processor time."""

    def first(self) -> bytes:
        """The client's first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The reply to the broker's message; None if the authentication is complete and the broker
        has proved what the mechanism demands. Raises :class:`RefusedError`."""
        ...


class Plain:
    """PLAIN: sends the password itself (RFC 4616). Neither the user name nor the password may
    contain a NUL character."""

    name: ClassVar[str] = "PLAIN"
    computes: ClassVar[bool] = False

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password

    def first(self) -> bytes:
        # The authorization id is empty: Kafka's PlainSaslServer accepts only that or the same name.
        return f"\0{self._username}\0{self._password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise RefusedError("the broker answered PLAIN with a challenge, which has none")
        return None


class OAuthBearer:
    """OAUTHBEARER: sends a token of an identity provider (RFC 7628, KIP-255)."""

    name: ClassVar[str] = "OAUTHBEARER"
    computes: ClassVar[bool] = False

    def __init__(self, token: Token) -> None:
        self._token = token
        self._refusal: str | None = None

    def first(self) -> bytes:
        pairs = {"auth": f"Bearer {self._token.value}", **self._token.extensions}
        return ("n,,\x01" + "".join(f"{k}={v}\x01" for k, v in pairs.items()) + "\x01").encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._refusal is not None:
            raise RefusedError(f"the broker refused the token: {self._refusal}")
        if not challenge:
            return None
        # The broker's reason, as JSON. After the client's reply the broker sends its error.
        self._refusal = challenge[:500].decode("utf-8", "replace")
        return b"\x01"
