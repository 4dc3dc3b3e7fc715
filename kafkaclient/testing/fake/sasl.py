"""SASL authentication for the listeners of a fake cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake.interceptors import Request


def _accept(_mechanism: str, _message: bytes) -> str | None:
    return None


@dataclass(slots=True)
class _Peer:
    """The state of one connection. ``ends_at`` is None before the first authentication."""

    mechanism: str | None = None
    ends_at: float | None = None


@dataclass(slots=True)
class Sasl:
    """The SASL settings of a fake cluster.

    ``refusal(mechanism, message)`` returns the reason to refuse a client, or None. ``lifetime_s``
    is the session lifetime in seconds; 0 is unlimited. It may be changed at any time."""

    mechanisms: tuple[str, ...] = ("PLAIN", "OAUTHBEARER")
    refusal: Callable[[str, bytes], str | None] = _accept
    lifetime_s: float = 0.0
    messages: list[bytes] = field(default_factory=list)
    """The clients' authentication messages, in the order of arrival."""
    _peers: dict[int, _Peer] = field(default_factory=dict)

    def allows(self, request: Request, now: float) -> bool:
        """Whether the broker accepts the request in the current state of the connection."""
        peer = self._peer(request)
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            return peer.mechanism is None
        if request.api_key == ApiKey.SASL_AUTHENTICATE:
            return peer.mechanism is not None
        if peer.ends_at is None and peer.mechanism is None:
            return request.api_key == ApiKey.API_VERSIONS
        return peer.mechanism is None and (peer.ends_at or 0.0) > now

    def is_authenticated(self, request: Request) -> bool:
        """Whether the connection has logged in; not for applications."""
        return self._peer(request).ends_at is not None

    def handshake(self, request: Request) -> dict[str, Any]:
        """The response to a SaslHandshake request; not for applications."""
        mechanism = request.message.mechanism
        known = mechanism in self.mechanisms
        if known:
            self._peer(request).mechanism = mechanism
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return {"error_code": int(code), "mechanisms": list(self.mechanisms)}

    def authenticate(self, request: Request, now: float) -> dict[str, Any]:
        """The response to a SaslAuthenticate request; not for applications."""
        peer = self._peer(request)
        message = bytes(request.message.auth_bytes)
        self.messages.append(message)
        refusal = self.refusal(peer.mechanism or "", message)
        peer.mechanism = None
        if refusal is not None:
            peer.ends_at = None
            code = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
            return {"error_code": code, "error_message": refusal, "auth_bytes": b""}
        peer.ends_at = now + self.lifetime_s if self.lifetime_s else float("inf")
        return {
            "error_code": int(ErrorCode.NONE),
            "error_message": None,
            "auth_bytes": b"",
            "session_lifetime_ms": int(self.lifetime_s * 1000),
        }

    def _peer(self, request: Request) -> _Peer:
        return self._peers.setdefault(request.connection, _Peer())
