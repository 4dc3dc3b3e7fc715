"""OAUTHBEARER: a token that somebody else has issued (RFC 7628, KIP-255)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kafkaclient.net.sasl.mechanism import RefusedError

if TYPE_CHECKING:
    from kafkaclient.net.sasl.tokens import Token

__all__ = ["OAuthBearer"]

_GIVE_UP = b"\x01"


class OAuthBearer:
    """A :class:`~kafkaclient.net.sasl.mechanism.Mechanism`."""

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
        # The broker's reason, as JSON; it ends the exchange with an error when it is told to.
        self._refusal = challenge[:500].decode("utf-8", "replace")
        return _GIVE_UP
