"""Explains a failed TLS handshake, and finds out whether a listener has TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.wire.api_versions import ApiVersionsCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_PATIENCE_S = 1.0

# OpenSSL's verification codes (X509_V_ERR_...).
_ADVICE = {
    9: "check the clocks of both machines",
    10: "it must be renewed on the broker",
    18: "is it meant to be trusted? then name it in ssl_truststore_location",
    19: "name the certificate of the authority in ssl_truststore_location",
    20: "name the certificate of the authority that issued it in ssl_truststore_location",
    62: "it must name the host that clients connect to (advertised.listeners)",
    64: "it must name the address that clients connect to (advertised.listeners)",
}

_OTHER_NAME = (62, 64)

# TLS alert of the broker -> explanation.
_ALERTS = {
    "CERTIFICATE_REQUIRED": "it demands a certificate of this client; give ssl_keystore_location",
    "BAD_CERTIFICATE": "it does not accept this client's certificate, or misses one: see "
    "ssl_keystore_location",
    "UNKNOWN_CA": "it does not trust the authority of this client's certificate",
    "CERTIFICATE_UNKNOWN": "it does not accept this client's certificate",
    "CERTIFICATE_EXPIRED": "this client's certificate has expired",
    "CERTIFICATE_REVOKED": "this client's certificate has been revoked",
    "HANDSHAKE_FAILURE": "no cipher suite in common, or a certificate of this client is missing "
    "(ssl_keystore_location)",
    "PROTOCOL_VERSION": "no TLS version in common; see ssl_enabled_protocols",
    "ACCESS_DENIED": "access denied",
    "UNRECOGNIZED_NAME": "it has no certificate for this name",
}
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH")
_NO_COMMON = ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "NO_CIPHERS_AVAILABLE")


def explain_tls_error(error: BaseException | None, server_name: str | None = None) -> str | None:
    """The permanent reason of a TLS failure; None for a temporary error or another error.

    ``server_name`` is the option ssl_endpoint_hostname."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _ADVICE.get(error.verify_code)
        if error.verify_code in _OTHER_NAME:
            advice = (
                f"{advice}, or ssl_endpoint_hostname the name in the certificate"
                if server_name is None
                else f"it must name ssl_endpoint_hostname={server_name}"
            )
        text = f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
        return f"{text}; {advice}" if advice else text
    if not isinstance(error, ssl.SSLError) or not error.reason:
        return None
    reason = error.reason
    if "ALERT_" in reason:
        word = reason.partition("ALERT_")[2]
        return f"the broker ended it: {_ALERTS[word]}" if word in _ALERTS else None
    if reason.startswith(_NOT_TLS):
        return (
            "the listener does not speak TLS; is security.protocol right, and is this the port of "
            "an SSL or SASL_SSL listener?"
        )
    if reason.startswith(_NO_COMMON):
        return f"no version of TLS in common ({reason}); see ssl_enabled_protocols"
    return None


class _Listener(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.heard = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) >= 8:
            self.heard.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.heard.set()


Connect: TypeAlias = (
    "Callable[[Callable[[], _Listener]], Awaitable[tuple[asyncio.Transport, _Listener]]]"
)
"""Opens a connection without encryption."""


async def is_tls(connect: Connect) -> bool:
    """Whether the peer speaks TLS; sends only the beginning of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no handshake is made
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    first = await _reply(connect, outgoing.read())
    return first[:2] in (b"\x16\x03", b"\x15\x03")  # a handshake record, or an alert


async def is_plain_kafka(connect: Connect) -> bool:
    """Whether the peer speaks Kafka without encryption; sends an ApiVersions request."""
    first = await _reply(connect, ApiVersionsCall().encode(0, 0x6B61666B, "kafkaclient"))
    return first[4:8] == b"kafk"


async def _reply(connect: Connect, request: bytes) -> bytes:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            transport, listener = await connect(_Listener)
            try:
                transport.write(request)
                await listener.heard.wait()
            finally:
                transport.abort()
    except (OSError, TimeoutError):
        return b""
    return listener.received
