"""The two calls of authentication (KIP-43, KIP-152, KIP-368), written out by hand: what they carry
is secret, and nothing that could show it, or keep it, has a part in them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api import ApiKey, Call
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.writer import INT32, NO_TAGS, string, uvarint

if TYPE_CHECKING:
    from kafkaclient.types import Buffer

__all__ = ["SaslAnswer", "SaslAuthenticateCall", "SaslHandshakeCall", "SaslMechanisms"]

_HEADER = struct.Struct(">hhi").pack
_FIRST_FLEXIBLE = 2
_FIRST_WITH_LIFETIME = 1


class SaslMechanisms(NamedTuple):
    """Whether the broker takes the mechanism (33: it does not), and those that it offers."""

    error_code: int
    mechanisms: tuple[str, ...]


class SaslAnswer(NamedTuple):
    """The broker's next message. ``session_lifetime_ms``: how long the connection may be used
    before it must authenticate again; 0 is for ever, and while authentication is not over."""

    error_code: int
    error_message: str | None
    challenge: bytes
    session_lifetime_ms: int

    def __repr__(self) -> str:
        return f"SaslAnswer(error_code={self.error_code}, {len(self.challenge)} bytes hidden)"


@dataclass(frozen=True, slots=True)
class SaslHandshakeCall(Call[SaslMechanisms]):
    """Choose a mechanism. Version 0 would have its messages sent without Kafka's framing."""

    api_key: ClassVar[ApiKey] = ApiKey.SASL_HANDSHAKE
    min_version: ClassVar[int] = 1
    max_version: ClassVar[int] = 1
    mechanism: str

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        header = _HEADER(self.api_key, version, correlation_id) + string(client_id)
        return _framed(header + string(self.mechanism))

    def decode(self, version: int, payload: Buffer) -> SaslMechanisms:
        try:
            reader = Reader(payload, flexible=False)
            error_code = reader.int16()
            return SaslMechanisms(error_code, tuple(reader.string() for _ in reader.array(2)))
        except ProtocolError as error:
            raise _malformed(self.api_key, version, payload) from error


@dataclass(frozen=True, slots=True)
class SaslAuthenticateCall(Call[SaslAnswer]):
    """One message of the chosen mechanism, and the broker's answer to it."""

    api_key: ClassVar[ApiKey] = ApiKey.SASL_AUTHENTICATE
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 2
    message: bytes = field(repr=False)

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        header = _HEADER(self.api_key, version, correlation_id) + string(client_id)
        if version < _FIRST_FLEXIBLE:
            return _framed(header + INT32.pack(len(self.message)) + self.message)
        size = uvarint(len(self.message) + 1)
        return _framed(header + NO_TAGS + size + self.message + NO_TAGS)

    def decode(self, version: int, payload: Buffer) -> SaslAnswer:
        try:
            reader = Reader(payload, flexible=version >= _FIRST_FLEXIBLE)
            reader.skip_tagged_fields()  # of the response header
            error_code, error_message = reader.int16(), reader.nullable_string()
            size = len(reader.array(1))  # bytes are an array of them
            start = reader.advance(size)
            challenge = bytes(reader.data[start : reader.position])
            lifetime_ms = reader.int64() if version >= _FIRST_WITH_LIFETIME else 0
            reader.skip_tagged_fields()
        except ProtocolError as error:
            raise _malformed(self.api_key, version, payload) from error
        return SaslAnswer(error_code, error_message, challenge, lifetime_ms)


def _framed(request: bytes) -> bytes:
    return INT32.pack(len(request)) + request


def _malformed(api_key: ApiKey, version: int, payload: Buffer) -> ProtocolError:
    return ProtocolError(f"malformed {api_key.name} v{version} response of {len(payload)} bytes")
