"""Fetches tokens with OIDC client credentials (KIP-768): one POST to the identity provider."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import AuthenticationError, BrokerConnectionError
from kafkaclient.net.off_loop import OffLoop
from kafkaclient.net.sasl.tokens import Token

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

_TIMEOUT_S = 10.0
_LONGEST = 1 << 20
_QUOTED = 300


class ClientCredentials:
    """A :class:`~kafkaclient.net.sasl.tokens.TokenProvider`.

    It sends one request every few minutes, with the standard library's HTTP client in a thread.
    ``context`` verifies the identity provider's certificate; None means the operating system's
    truststore. ``timeout_s`` limits each network operation.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        scope: str | None = None,
        *,
        context: ssl.SSLContext | None = None,
        wall_clock: Callable[[], float] = time.time,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        form = {"grant_type": "client_credentials"}
        if scope:
            form["scope"] = scope
        # As in Java's HttpJwtRetriever: Basic, without URL encoding of id and secret.
        login = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
        self._request = urllib.request.Request(  # noqa: S310 - the config accepts http(s) only
            url,
            data=urllib.parse.urlencode(form).encode(),
            headers={
                "Accept": "application/json",
                "Authorization": f"Basic {login}",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        self.where = _without_secrets(url)
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
        try:
            opener = urllib.request.build_opener(*handlers)
            with opener.open(self._request, timeout=self._timeout_s) as response:
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
