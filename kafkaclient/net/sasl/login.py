"""Makes the mechanism for each authentication, with the credentials of the options."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkaclient.errors import SaslAuthenticationError
from kafkaclient.net.sasl.mechanisms import OAuthBearer, Plain
from kafkaclient.net.sasl.oidc import ClientCredentials
from kafkaclient.net.sasl.scram import KeyCache, Scram256, Scram512
from kafkaclient.net.sasl.tokens import TokenSource
from kafkaclient.net.tls import https_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config.security import SecurityOptions
    from kafkaclient.net.sasl.mechanisms import Mechanism
    from kafkaclient.net.sasl.tokens import Token

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
