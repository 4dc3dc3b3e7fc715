"""aiokafka's token provider, which returns a str, as a token provider of ours."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from kafkaclient import Token

__all__ = ["TokenAdapter", "token_provider_for"]


_IN_MILLISECONDS = 1e12  # a claim from here on is against RFC 7519; aiokafka reads no claims


class TokenAdapter:
    """Wraps an ``aiokafka.abc.AbstractTokenProvider``.

    A token that is a JWT is used until its claim ``exp``, another token for 5 minutes. The
    provider's ``extensions()`` are sent with it. A provider may return a
    :class:`kafkaclient.Token` as well.
    """

    __slots__ = ("__wrapped__",)

    def __init__(self, provider: Any) -> None:
        self.__wrapped__ = provider  # errors name the provider, not this class

    async def token(self) -> Token:
        token = await self.__wrapped__.token()
        if isinstance(token, Token):
            return token
        if not isinstance(token, str):
            kind = type(token).__name__
            raise TypeError(f"token() of a token provider must return a str, not {kind}")
        extensions: Any = getattr(self.__wrapped__, "extensions", None)
        return Token(token, _expiry(token), dict(extensions() or {}) if extensions else {})


def token_provider_for(provider: Any) -> Any:
    """The option ``sasl_oauth_token_provider`` of :class:`kafkaclient.Producer`. A provider with a
    method ``for_brokers`` is one of kafkaclient's own."""
    is_aiokafkas = hasattr(provider, "token") and not hasattr(provider, "for_brokers")
    return TokenAdapter(provider) if is_aiokafkas else provider


def _expiry(token: str) -> float | None:
    """The claim ``exp`` of a JWT, in seconds since the epoch; None: no JWT, or no such claim."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        seconds = float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
    return seconds if seconds < _IN_MILLISECONDS else None
