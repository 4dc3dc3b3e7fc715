"""Tokens for OAUTHBEARER, from the application's provider, kept while they are valid."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.config.kinds import EXTENSION_NAME, EXTENSION_VALUE
from kafkaclient.errors import AuthenticationError, BrokerConnectionError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_USED_SHARE = 0.8
"""The share of its lifetime for which a token is used (sasl.login.refresh.window.factor)."""

_ASSUMED_LIFE_S = 300.0
"""The lifetime of tokens without an expiry time."""

# RFC 6750's b64token, with '=' in any place.
_TOKEN = re.compile(r"[-A-Za-z0-9._~+/=]+")


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token.

    ``expires_at``: its expiry time in seconds since the epoch; a token with None is used for 5
    minutes. ``extensions``: SASL extensions (KIP-342), such as ``{"logicalCluster": "lkc-1"}``.
    """

    value: str = field(repr=False)
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


def check_token(token: Token) -> None:
    """Raise ValueError for a token that cannot be sent. The message does not contain the token."""
    if not _TOKEN.fullmatch(token.value):
        raise ValueError("the token is empty, or has characters that no bearer token has")
    for name, value in token.extensions.items():
        if not EXTENSION_NAME.fullmatch(name) or name == "auth":
            raise ValueError(f"{name!r} cannot be the name of a SASL extension: letters, not auth")
        if not EXTENSION_VALUE.fullmatch(value):
            raise ValueError(f"the value of the SASL extension {name} has unusable characters")


class TokenProvider(Protocol):
    """The type of ``sasl_oauth_token_provider``; an async function () -> Token works as well.

    A provider may also have a method ``for_brokers(host_names) -> TokenProvider``. Each client
    calls it once, with the hosts of its bootstrap servers, and uses the returned provider.
    """

    async def token(self) -> Token:
        """A valid token.

        Called for the first connection, and after 80 % of the last token's lifetime. If it raises,
        the connections that need a token fail with that error and are retried. After an
        :class:`~kafkaclient.errors.AuthenticationError` they are not retried, and the client's
        start fails at once.
        """
        ...


class TokenSource:
    """The current token of a provider. All connections share one request for a new token.

    ``wall_clock`` returns seconds since the epoch.
    """

    def __init__(
        self,
        provider: TokenProvider | Callable[[], Awaitable[Token]],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        request: Any = getattr(provider, "token", provider)
        self._request_token: Callable[[], Awaitable[Token]] = request
        self.provider: str = getattr(provider, "__qualname__", type(provider).__qualname__)
        """The name of the provider's class or function, for messages: its repr may have secrets."""
        self._wall_clock = wall_clock
        self._lock = asyncio.Lock()
        self._token: Token | None = None
        self._good_until = 0.0

    async def get(self) -> Token:
        """The current token.

        Raises the provider's own KafkaError, AuthenticationError if the provider is defective, and
        :class:`~kafkaclient.errors.BrokerConnectionError` for its other exceptions.
        """
        async with self._lock:
            if self._token is None or self._wall_clock() >= self._good_until:
                requested_at = self._wall_clock()
                token = await self._fetch()
                ends = token.expires_at
                life = _ASSUMED_LIFE_S if ends is None else max(0.0, ends - requested_at)
                self._token, self._good_until = token, requested_at + _USED_SHARE * life
            return self._token

    def drop(self, token: Token | None) -> None:
        """Do not use this token again: a broker has refused it."""
        if token is self._token:
            self._token = None

    async def _fetch(self) -> Token:
        try:
            given = self._request_token()
            if not isawaitable(given):
                raise TypeError("the token provider is not async")  # noqa: TRY301
            token: Any = await given
            if not isinstance(token, Token):
                raise TypeError(  # noqa: TRY301
                    f"the token provider returned a {type(token).__name__}, not a kafkaclient.Token"
                )
            check_token(token)
        except KafkaError:
            raise
        except (TypeError, ValueError) as error:
            # A defect of the provider, which a retry does not help.
            raise AuthenticationError(
                f"no token for OAUTHBEARER from {self.provider}: {error}"
            ) from error
        except Exception as error:
            raise BrokerConnectionError(
                f"no token for OAUTHBEARER: the provider {self.provider} raised "
                f"{type(error).__name__}: {error}"
            ) from error
        return token
