"""Tokens for OAUTHBEARER, kept while they are valid: from the application's provider, or fetched
with OIDC client credentials (KIP-768), one POST to the identity provider."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from inspect import isawaitable
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.config.kinds import EXTENSION_NAME, EXTENSION_VALUE
from kafkaclient.errors import AuthenticationError, BrokerConnectionError, KafkaError
from kafkaclient.net.off_loop import OffLoop

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path


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
        self.provider: str = name or _path(provider)
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


_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TIMEOUT_S = 10.0
_LONGEST = 1 << 20
_QUOTED = 300


class ClientCredentials:
    """A :class:`~kafkaclient.net.tokens.TokenProvider`.

    It sends one request every few minutes, with the standard library's HTTP client in a thread. A
    client without a secret is proven by the JWT in ``assertion_file``, which is read for each
    request (KIP-1258); with ``jwt_bearer`` that JWT is the grant itself (KIP-1139, RFC 7523).
    ``context`` verifies the identity provider's certificate; None means the operating system's
    truststore. ``timeout_s`` limits each network operation.
    """

    def __init__(
        self,
        url: str,
        client_id: str | None = None,
        client_secret: str | None = None,
        scope: str | None = None,
        *,
        assertion_file: Path | None = None,
        jwt_bearer: bool = False,
        context: ssl.SSLContext | None = None,
        wall_clock: Callable[[], float] = time.time,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._url = url
        self._form = {"grant_type": _JWT_BEARER if jwt_bearer else "client_credentials"}
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        if scope:
            self._form["scope"] = scope
        if assertion_file is None:
            # As in Java's HttpJwtRetriever: Basic, without URL encoding of id and secret.
            login = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
        elif not jwt_bearer:
            self._form["client_assertion_type"] = _CLIENT_ASSERTION
            if client_id:
                self._form["client_id"] = client_id
        self._assertion_file = assertion_file
        self._assertion = "assertion" if jwt_bearer else "client_assertion"
        self.where: str = _without_secrets(url)
        """The address, without a query and without a password."""
        self._context = context
        self._wall_clock = wall_clock
        self._timeout_s = timeout_s
        self._off_loop: OffLoop[Mapping[str, Any]] = OffLoop()

    def __repr__(self) -> str:
        return f"<ClientCredentials at {self.where}>"

    async def token(self) -> Token:
        """A new token. Raises :class:`~kafkaclient.errors.AuthenticationError` if the client is
        refused or the response is invalid, BrokerConnectionError if a retry may help."""
        requested_at = self._wall_clock()
        answer = await self._off_loop.run(self._post)
        value, life = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(value, str) or not value:
            raise AuthenticationError(f"{self.where} answered without an access_token")
        try:
            expires_at = None if life is None else requested_at + float(life)
        except (TypeError, ValueError):
            expires_at = None
        return Token(value, expires_at)

    def _post(self) -> Mapping[str, Any]:
        handlers = [_NoRedirect(), urllib.request.HTTPSHandler(context=self._context)]
        form = dict(self._form)
        if self._assertion_file is not None:
            try:
                form[self._assertion] = self._assertion_file.read_text("ascii").strip()
            except (OSError, UnicodeError) as error:
                text = f"no token: the assertion in {self._assertion_file} cannot be read: {error}"
                raise AuthenticationError(text) from None
        data = urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(  # noqa: S310 - the config accepts http(s) only
            self._url, data=data, headers=self._headers
        )
        try:
            opener = urllib.request.build_opener(*handlers)
            with opener.open(request, timeout=self._timeout_s) as response:
                body = response.read(_LONGEST)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(_QUOTED).decode("utf-8", "replace")
            text = f"no token: {self.where} answered {error.code} {error.reason}: {said}"
            if error.code in (408, 429) or error.code >= 500:
                raise BrokerConnectionError(text) from None
            raise AuthenticationError(text) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise BrokerConnectionError(f"no token: {self.where}: {reason}") from error
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise AuthenticationError(f"{self.where} answered with something other than JSON")
        return answer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the secret must only go to the configured address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _without_secrets(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"
