"""The interface of SASL mechanisms, and the two simple ones: PLAIN and OAUTHBEARER."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from kafkaclient.net.tokens import Token


class SaslRefusedError(Exception):
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
        has proved what the mechanism demands. Raises :class:`SaslRefusedError`."""
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
            raise SaslRefusedError("the broker answered PLAIN with a challenge, which has none")
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
            raise SaslRefusedError(f"the broker refused the token: {self._refusal}")
        if not challenge:
            return None
        # The broker's reason, as JSON. After the client's reply the broker sends its error.
        self._refusal = challenge[:500].decode("utf-8", "replace")
        return b"\x01"
