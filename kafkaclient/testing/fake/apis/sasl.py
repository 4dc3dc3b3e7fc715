"""SaslHandshake (17) and SaslAuthenticate (36): authenticate the client.

Behavior
    Without a :class:`~kafkaclient.testing.fake.Sasl` there is no authentication, and SaslHandshake
    gets ILLEGAL_SASL_STATE. With it a connection may send only ApiVersions and SASL requests before
    it has authenticated, only SASL requests while it authenticates again (KIP-368), and only
    SaslHandshake after the end of its session. Any other request closes the connection, as in
    Kafka. One message authenticates, as with PLAIN and OAUTHBEARER. After a refusal the client
    closes the connection, or the broker closes it at the next request.

Versions
    SaslHandshake 0 to 1, SaslAuthenticate 0 to 2, from 1 on with the lifetime of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["AUTHENTICATE", "HANDSHAKE"]


class _Handshake:
    VERSIONS = (0, 1)

    def answer(self, state: ClusterState, request: Request) -> dict[str, Any]:
        if state.sasl is None:
            return self.refuse(request, ErrorCode.ILLEGAL_SASL_STATE)
        return state.sasl.handshake(request)

    def refuse(self, _: Request, error_code: int) -> dict[str, Any]:
        return {"error_code": int(error_code), "mechanisms": []}


class _Authenticate:
    VERSIONS = (0, 2)

    def answer(self, state: ClusterState, request: Request) -> dict[str, Any]:
        if state.sasl is None:
            return self.refuse(request, ErrorCode.ILLEGAL_SASL_STATE)
        return state.sasl.authenticate(request, state.now())

    def refuse(self, _: Request, error_code: int) -> dict[str, Any]:
        return {"error_code": int(error_code), "error_message": None, "auth_bytes": b""}


HANDSHAKE = _Handshake()
AUTHENTICATE = _Authenticate()
