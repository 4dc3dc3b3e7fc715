"""Tokens for OAUTHBEARER, from the application's provider, kept while they are valid."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from inspect import isawaitable
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.config.kinds import EXTENSION_NAME, EXTENSION_VALUE
from kafkaclient.errors import AuthenticationError, BrokerConnectionError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_USED_SHARE = 0.8
"""The share of its lifetime for which a token is used (sasl.login.refresh.window.factor)."""

_ASSUMED_LIFE_S = 300.0
"""The lifetime of tokens without an expiry time."""

# Times of the years 2001 to 2286 in milliseconds. In seconds they are 30,000 years away.
_MILLISECONDS_FROM, _MILLISECONDS_TO = 1e12, 1e13

# RFC 6750's b64token, with '=' in any place.
_TOKEN = re.compile(r"[-A-Za-z0-9._~+/=]+")


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token.

    ``expires_at``: its expiry time, in seconds since the epoch or as a datetime with a time zone; a
    token with None is used for 5 minutes. ``extensions``: SASL extensions (KIP-342), such as
    ``{"logicalCluster": "lkc-1"}``.
    """

    value: str = field(repr=False)
    expires_at: float | datetime | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


def check_token(token: Token) -> None:
    """Raise ValueError for a token that cannot be sent, or has an expiry time that is none. The
    message does not contain the token."""
    _expiry_s(token.expires_at)
    if not _TOKEN.fullmatch(token.value):
        raise ValueError("the token is empty, or has characters that no bearer token has")
    for name, value in token.extensions.items():
        if not EXTENSION_NAME.fullmatch(name) or name == "auth":
            raise ValueError(f"{name!r} cannot be the name of a SASL extension: letters, not auth")
        if not EXTENSION_VALUE.fullmatch(value):
            raise ValueError(f"the value of the SASL extension {name} has unusable characters")


def _expiry_s(expires_at: object) -> float | None:
    """Seconds since the epoch; raises ValueError for what is no time."""
    if expires_at is None:
        return None
    if isinstance(expires_at, datetime):
        if expires_at.utcoffset() is None:
            raise ValueError(
                "expires_at is a datetime without a time zone: give a datetime with one, such as "
                "datetime.now(UTC) + lifetime, or seconds since the epoch"
            )
        return expires_at.timestamp()
    if not isinstance(expires_at, Real):
        raise ValueError(  # noqa: TRY004 - as for other values that are no time
            f"expires_at is a {type(expires_at).__name__}: give seconds since the epoch, or a "
            "datetime with a time zone"
        )
    seconds = float(expires_at)
    if _MILLISECONDS_FROM <= seconds < _MILLISECONDS_TO:
        raise ValueError(
            f"expires_at={seconds:.15g} is in milliseconds: give seconds since the epoch"
        )
    return seconds


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
        start fails at once. A client that has had a token before retries after every error: what
        a running program logs in with may be away for a moment.
        """
        ...


class TokenSource:
    """The current token of a provider. All connections share one request for a new token.

    ``wall_clock`` returns seconds since the epoch. ``name`` is the provider's for messages.
    """

    def __init__(
        self,
        provider: TokenProvider | Callable[[], Awaitable[Token]],
        wall_clock: Callable[[], float] = time.time,
        name: str | None = None,
    ) -> None:
        request: Any = getattr(provider, "token", provider)
        self._request_token: Callable[[], Awaitable[Token]] = request
        self.provider = name or _path(provider)
        """The provider's name for messages."""
        self._wall_clock = wall_clock
        self._lock = asyncio.Lock()
        self._token: Token | None = None
        self._good_until = 0.0
        self._had_token = False
        self._failure: str | None = None
        self.missing: str | None = None
        """Why there is no token, for messages; None if there is one, or none was asked for."""

    async def get(self) -> Token:
        """The current token.

        Raises the provider's own KafkaError, AuthenticationError if the provider is defective, and
        :class:`~kafkaclient.errors.BrokerConnectionError` for its other exceptions. After the first
        token a BrokerConnectionError takes the place of an AuthenticationError.
        """
        async with self._lock:
            if self._token is None or self._wall_clock() >= self._good_until:
                requested_at = self._wall_clock()
                token = await self._fetch()
                ends = _expiry_s(token.expires_at)
                life = _ASSUMED_LIFE_S if ends is None else max(0.0, ends - requested_at)
                self._token, self._good_until = token, requested_at + _USED_SHARE * life
            return self._token

    def drop(self, token: Token | None) -> None:
        """Do not use this token again: a broker has refused it."""
        if token is self._token:
            self._token = None

    async def _fetch(self) -> Token:
        before = "" if self._failure is None else f"; before, {self._failure}"
        self.missing = f"the token provider {self.provider} has not returned a token{before}"
        try:
            token = await self._ask()
        except KafkaError as error:
            text = str(error)
            named = self.provider in text
            self._failure = text if named else f"the token provider {self.provider} failed: {text}"
            self.missing = self._failure
            if self._had_token and isinstance(error, AuthenticationError):
                raise self._retriable(error) from error
            raise
        self._had_token, self._failure, self.missing = True, None, None
        return token

    async def _ask(self) -> Token:
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
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self._retriable(error) from error  # the provider's own
        except Exception as error:
            raise self._retriable(error) from error
        return token

    def _retriable(self, error: BaseException) -> BrokerConnectionError:
        return BrokerConnectionError(
            f"no token for OAUTHBEARER: the provider {self.provider} raised "
            f"{type(error).__name__}: {error}"
        )


def _path(provider: object) -> str:
    """``package.module:name`` of a provider's function or class. Its repr may have secrets."""
    found: Any = getattr(provider, "__wrapped__", provider)
    if isinstance(found, partial):
        found = found.func
    named = found if hasattr(found, "__qualname__") else type(found)
    return f"{named.__module__}:{named.__qualname__}"
