"""What a connection begins with: ApiVersions (KIP-35) and the calls of SASL.

Version 1 added the throttle time, 3 is the first flexible version (KIP-482) and added the client's
software and the cluster's features. Version 5 names the cluster and the broker that the client
means (KIP-1242, Kafka 4.4): any other broker answers with REBOOTSTRAP_REQUIRED.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import ProtocolError, UnsupportedVersionError
from kafkaclient.wire.api import (
    INT32,
    NO_TAGS,
    ApiKey,
    Call,
    compact_string,
    framed,
    malformed,
    request,
    string,
    uvarint,
)
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.types import Buffer


# --- ApiVersions (KIP-35), encoded and decoded by hand: the versions ------------------------------

_FIRST_WITH_THROTTLE = 1
_FIRST_FLEXIBLE = 3
FIRST_WITH_NODE = 5
"""The first version in which the request names the cluster and the broker."""
_FINALIZED_FEATURES = 2  # a tag of the response

# The smallest size of an element in bytes, which limits the counts that a peer can claim.
_MIN_RANGE = 6
_MIN_FEATURE = 6


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """The versions that one broker supports: API key -> (oldest version, newest version)."""

    error_code: int
    ranges: Mapping[int, tuple[int, int]]
    throttle_ms: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    """The cluster's feature levels, such as ``transaction.version`` (KIP-584, version 3 on)."""

    @property
    def transactions_v2(self) -> bool:
        """Whether the cluster has the transactions of KIP-890."""
        return self.features.get("transaction.version", 0) >= 2

    def pick(self, api_key: ApiKey, min_version: int, max_version: int) -> int:
        """The newest version of the API that both sides support.

        Raises :class:`~kafkaclient.errors.UnsupportedVersionError` if there is none.
        """
        offered = self.ranges.get(api_key)
        if offered is None:
            raise UnsupportedVersionError(f"the broker does not offer {api_key.name} at all")
        oldest, newest = offered
        version = newest if newest < max_version else max_version
        if version < oldest or version < min_version:
            raise UnsupportedVersionError(
                f"no common version of {api_key.name}: the broker supports {oldest} to {newest}, "
                f"this client {min_version} to {max_version}"
            )
        return version


@dataclass(frozen=True)
class ApiVersionsCall(Call[ApiVersions], api_key=ApiKey.API_VERSIONS, versions=(0, 5)):
    """The first call on every connection.

    A broker that does not know the version of the request answers with UNSUPPORTED_VERSION in
    version 0 (KIP-511). That response is decoded as well. ``cluster_id`` (None: any) and
    ``node_id`` (-1: any) are sent from version 5 on.
    """

    software_name: str = "kafkaclient"
    software_version: str = "0"
    cluster_id: str | None = None
    node_id: int = -1

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        flexible = version >= _FIRST_FLEXIBLE
        frame = request(self.api_key, version, correlation_id, client_id, flexible=flexible)
        if flexible:
            frame += compact_string(self.software_name) + compact_string(self.software_version)
            if version >= FIRST_WITH_NODE:
                frame += compact_string(self.cluster_id) + INT32.pack(self.node_id)
            frame += NO_TAGS
        return framed(frame)

    def decode(self, version: int, payload: Buffer) -> ApiVersions:
        # The response header is never flexible: the client does not know the broker's versions yet.
        reader = FieldReader(payload, flexible=version >= _FIRST_FLEXIBLE)
        try:
            error_code = reader.int16()
            if error_code == ErrorCode.UNSUPPORTED_VERSION:
                version, reader.flexible = 0, False
            ranges = dict([_range(reader) for _ in reader.array(_MIN_RANGE)])
            throttle_ms = reader.int32() if version >= _FIRST_WITH_THROTTLE else 0
            features = _features(reader.tagged_fields().get(_FINALIZED_FEATURES))
        except ProtocolError as error:
            raise malformed(self, version, payload, error) from error
        return ApiVersions(error_code, ranges, throttle_ms, features)


def _range(reader: FieldReader) -> tuple[int, tuple[int, int]]:
    api_key, versions = reader.int16(), (reader.int16(), reader.int16())
    reader.tagged_fields()
    return api_key, versions


def _features(tag: Buffer | None) -> dict[str, int]:
    """The finalized features and their highest levels."""
    features: dict[str, int] = {}
    if tag is not None:
        reader = FieldReader(tag, flexible=True)
        for _ in reader.array(_MIN_FEATURE):
            name = reader.string()
            features[name] = reader.int16()
            reader.int16()  # the lowest level
            reader.tagged_fields()
    return features


# --- SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368), encoded -----------------------
# Their messages are secret. No other library can log or keep them.

_SASL_FLEXIBLE = 2
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
            reader = FieldReader(payload, flexible=False)
            error_code = reader.int16()
            return SaslMechanisms(error_code, tuple(reader.string() for _ in reader.array(2)))
        except ProtocolError as error:
            raise _malformed(self.api_key, version, payload) from error


@dataclass(frozen=True)
class SaslAuthenticateCall(Call[SaslAnswer], api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2)):
    """Sends one message of the chosen mechanism."""

    message: bytes = field(repr=False)

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        flexible = version >= _SASL_FLEXIBLE
        start = request(self.api_key, version, correlation_id, client_id, flexible=flexible)
        if flexible:
            return framed(start + uvarint(len(self.message) + 1) + self.message + NO_TAGS)
        return framed(start + INT32.pack(len(self.message)) + self.message)

    def decode(self, version: int, payload: Buffer) -> SaslAnswer:
        try:
            reader = FieldReader(payload, flexible=version >= _SASL_FLEXIBLE)
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
