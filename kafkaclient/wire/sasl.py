"""SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368), encoded and decoded by hand.

Their messages are secret. No other library can log or keep them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api import ApiKey, Call
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.writer import INT32, NO_TAGS, framed, request, string, uvarint

if TYPE_CHECKING:
    from kafkaclient.types import Buffer

_FIRST_FLEXIBLE = 2
_FIRST_WITH_LIFETIME = 1


class SaslMechanisms(NamedTuple):
    """Whether the broker accepts the mechanism (33: it does not), and the mechanisms it offers."""

    error_code: int
    mechanisms: tuple[str, ...]


class SaslAnswer(NamedTuple):
    """The broker's next message. ``session_lifetime_ms``: the time until the connection must be
    authenticated again; 0 means never, or that the authentication has not ended yet."""

    error_code: int
    error_message: str | None
    challenge: bytes
    session_lifetime_ms: int

    def __repr__(self) -> str:
        return f"SaslAnswer(error_code={self.error_code}, {len(self.challenge)} bytes hidden)"


@dataclass(frozen=True)
class SaslHandshakeCall(Call[SaslMechanisms], api_key=ApiKey.SASL_HANDSHAKE, versions=(1, 1)):
    """Chooses a mechanism. After version 0 its messages would have no Kafka frames."""

    mechanism: str

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        start = request(self.api_key, version, correlation_id, client_id, flexible=False)
        return framed(start + string(self.mechanism))

    def decode(self, version: int, payload: Buffer) -> SaslMechanisms:
        try:
            reader = Reader(payload, flexible=False)
            error_code = reader.int16()
            return SaslMechanisms(error_code, tuple(reader.string() for _ in reader.array(2)))
        except ProtocolError as error:
            raise _malformed(self.api_key, version, payload) from error


@dataclass(frozen=True)
class SaslAuthenticateCall(Call[SaslAnswer], api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2)):
    """Sends one message of the chosen mechanism."""

    message: bytes = field(repr=False)

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        flexible = version >= _FIRST_FLEXIBLE
        start = request(self.api_key, version, correlation_id, client_id, flexible=flexible)
        if flexible:
            return framed(start + uvarint(len(self.message) + 1) + self.message + NO_TAGS)
        return framed(start + INT32.pack(len(self.message)) + self.message)

    def decode(self, version: int, payload: Buffer) -> SaslAnswer:
        try:
            reader = Reader(payload, flexible=version >= _FIRST_FLEXIBLE)
            reader.tagged_fields()  # of the response header
            error_code, error_message = reader.int16(), reader.nullable_string()
            challenge = bytes(reader.take(len(reader.array(1))))
            lifetime_ms = reader.int64() if version >= _FIRST_WITH_LIFETIME else 0
            reader.tagged_fields()
        except ProtocolError as error:
            raise _malformed(self.api_key, version, payload) from error
        return SaslAnswer(error_code, error_message, challenge, lifetime_ms)


def _malformed(api_key: ApiKey, version: int, payload: Buffer) -> ProtocolError:
    return ProtocolError(f"malformed {api_key.name} v{version} response of {len(payload)} bytes")
