"""Calls that kafka-python encodes and decodes, and the broker's side of the same codec.

kafka-python's ``kafka.protocol`` is generated from Apache Kafka's message schemas. No other module
imports it. It serves the calls of admin clients, groups and transactions. The calls that every
producer or reader makes have codecs of their own, and so have calls that are secret (SASL). The
broker's side, at the end of the file, is for the fake cluster and for tests.

``import kafka`` loads all of kafka-python's clients, and takes longer than to import everything
else that a producer or a reader needs. This module imports it at its top, so that the time is spent
at import and never inside a running event loop.
"""

from __future__ import annotations

import struct
import warnings
from abc import abstractmethod
from functools import cache, partial
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from kafkaclient.errors import ProtocolError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import (
    INT16,
    INT32,
    NO_TAGS,
    ApiKey,
    Call,
    compact_count,
    compact_string,
    framed,
)
from kafkaclient.wire.api_versions import FIRST_WITH_NODE
from kafkaclient.wire.reader import FieldReader
from kafkaclient.wire.telemetry import NO_INSTANCE_ID

with warnings.catch_warnings():
    # On Python 3.11 and 3.12 kafka-python calls a deprecated function while it is imported. An
    # application that turns warnings into errors could not import this package.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl
    from kafka.protocol.api_message import ApiMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkaclient.types import Buffer

T = TypeVar("T")
_R = TypeVar("_R")

# What kafka-python's decoders raise if the bytes are not the expected message.
_MALFORMED = (
    struct.error,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
)


def _message_classes() -> dict[int, tuple[type[ApiMessage], type[ApiMessage]]]:
    """API key -> kafka-python's (request, response) classes."""
    classes: dict[int, tuple[type[ApiMessage], type[ApiMessage]]] = {}
    for module in (
        kafka.protocol.admin,
        kafka.protocol.consumer,
        kafka.protocol.metadata,
        kafka.protocol.producer,
        kafka.protocol.sasl,
    ):
        for name in module.__all__:
            request = getattr(module, name)
            if name.endswith("Request") and issubclass(request, ApiMessage):
                response = getattr(module, name.removesuffix("Request") + "Response")
                classes[request.API_KEY] = (request, response)
    return classes


_CLASSES = _message_classes()

# kafka-python has ApiVersions up to version 4. Version 5 adds two fields to the request only.
_NEWEST_API_VERSIONS = 4


def _guarded(what: str, read: Callable[[], _R]) -> _R:
    try:
        return read()
    except _MALFORMED as error:
        raise ProtocolError(f"malformed {what}: {type(error).__name__}: {error}") from error


class CodecCall(Call[T]):
    """A call that kafka-python encodes. Subclasses map values to its messages and back."""

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """The fields of the request in all versions; nested structs as dicts."""

    @abstractmethod
    def _result(self, message: Any) -> T:
        """The value of a decoded response."""

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        request = _build(_CLASSES[self.api_key][0], version, self._fields())
        request.with_header(correlation_id=correlation_id, client_id=client_id)
        return bytes(request.encode(header=True, framed=True))

    def decode(self, version: int, payload: Buffer) -> T:
        response = _CLASSES[self.api_key][1]
        # The header of an ApiVersions response is never flexible: the client does not know the
        # broker's versions yet (KIP-511).
        flexible = self.api_key != ApiKey.API_VERSIONS and response.flexible_version_q(version)
        reader = FieldReader(payload, flexible=flexible)
        reader.tagged_fields()
        body = reader.data[reader.position :]
        return _guarded(
            f"{self.api_key.name} v{version} response of {len(payload)} bytes",
            lambda: self._result(response.decode(body, version=version)),
        )


def partitions_in(
    topics: Iterable[Any], names: Mapping[UUID, str] = MappingProxyType({})
) -> Iterator[tuple[TopicPartition, Any]]:
    """The partitions of a response's topics, each with its struct. ``names``: the topics' names, if
    the response may name topics by id only."""
    for topic in topics:
        name = topic.name or names.get(topic.topic_id, "")
        for found in topic.partitions:
            yield TopicPartition(name, found.partition_index), found


def or_unknown(number: int | None) -> int:
    """-1 for a number that older versions of a response do not have."""
    return -1 if number is None else number


class RequestFrame(NamedTuple):
    """A decoded request. ``message`` is kafka-python's object, with field names in snake case.

    ``message`` is None if the codec does not know the API or the version. A broker answers such a
    request with UNSUPPORTED_VERSION (ApiVersions: in version 0 of the response).
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    message: Any

    @property
    def expects_response(self) -> bool:
        """False for Produce with acks=0, which a broker must not answer."""
        return self.message is None or bool(self.message.expect_response())


def decode_request(frame: Buffer) -> RequestFrame:
    """The request in a frame, from the bytes behind the frame's 4-byte size.

    Raises :class:`~kafkaclient.errors.ProtocolError` if the bytes are not a request.
    """
    reader = FieldReader(frame, flexible=False)
    api_key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    client_id = reader.nullable_string()
    request, _ = _CLASSES.get(api_key, (None, None))
    if (api_key, version) in _HAND_MADE:
        reader.flexible = True
        reader.tagged_fields()
        message = _HAND_MADE[api_key, version](reader)
        return RequestFrame(api_key, version, correlation_id, client_id, message)
    if request is None or not 0 <= version <= request.max_version:
        return RequestFrame(api_key, version, correlation_id, client_id, None)
    reader.flexible = request.flexible_version_q(version)
    reader.tagged_fields()
    body = reader.data[reader.position :]
    message = _guarded(
        f"{request.__name__} v{version} of {len(frame)} bytes",
        lambda: request.decode(body, version=version),
    )
    return RequestFrame(api_key, version, correlation_id, client_id, message)


def _api_versions_with_node(reader: FieldReader) -> Any:
    return SimpleNamespace(
        client_software_name=reader.string(),
        client_software_version=reader.string(),
        cluster_id=reader.nullable_string(),
        node_id=reader.int32(),
        expect_response=lambda: True,
    )


def _group_heartbeat(reader: FieldReader, *, with_regex: bool) -> Any:
    return SimpleNamespace(
        group_id=reader.string(),
        member_id=reader.string(),
        member_epoch=reader.int32(),
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        topics=[reader.string() for _ in reader.array(1)],
        regex=reader.nullable_string() if with_regex else None,
        assignor=reader.nullable_string(),
        topic_partitions={
            UUID(bytes=bytes(reader.take(16))): _numbers(reader) for _ in reader.array(18)
        },
        expect_response=lambda: True,
    )


def _get_telemetry_subscriptions(reader: FieldReader) -> Any:
    return SimpleNamespace(
        client_instance_id=UUID(bytes=bytes(reader.take(16))), expect_response=lambda: True
    )


def _push_telemetry(reader: FieldReader) -> Any:
    return SimpleNamespace(
        client_instance_id=UUID(bytes=bytes(reader.take(16))),
        subscription_id=reader.int32(),
        terminating=bool(reader.int8()),
        compression_type=reader.int8(),
        metrics=bytes(reader.take(reader.uvarint() - 1)),
        expect_response=lambda: True,
    )


def _numbers(reader: FieldReader) -> list[int]:
    numbers = [reader.int32() for _ in reader.array(4)]
    reader.tagged_fields()
    return numbers


# What kafka-python has no schema for.
_HAND_MADE: Mapping[tuple[int, int], Callable[[FieldReader], Any]] = {
    (ApiKey.API_VERSIONS, FIRST_WITH_NODE): _api_versions_with_node,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0): partial(_group_heartbeat, with_regex=False),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1): partial(_group_heartbeat, with_regex=True),
    (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0): _get_telemetry_subscriptions,
    (ApiKey.PUSH_TELEMETRY, 0): _push_telemetry,
}


def encode_response(api_key: int, version: int, correlation_id: int, **fields: Any) -> bytes:
    """A response as a broker sends it: 4-byte size, header, body.

    Fields have the schema's names in snake case. A nested struct is a dict, an array of structs is
    a list of dicts. A field that is left out has the schema's default. A field that this version
    does not have is ignored. Raises ValueError for a name that the schema does not have.
    """
    if api_key in _HAND_MADE_RESPONSES:
        return framed(_HAND_MADE_RESPONSES[api_key](_response_header(correlation_id), **fields))
    if api_key == ApiKey.API_VERSIONS:
        version = min(version, _NEWEST_API_VERSIONS)
    response = _build(_CLASSES[api_key][1], version, fields)
    response.with_header(correlation_id=correlation_id)
    return bytes(response.encode(header=True, framed=True))


def _response_header(correlation_id: int) -> bytearray:
    return bytearray(INT32.pack(0) + INT32.pack(correlation_id) + NO_TAGS)


def _heartbeat_response(
    out: bytearray,
    error_code: int = 0,
    error_message: str | None = None,
    member_id: str | None = None,
    member_epoch: int = 0,
    heartbeat_interval_ms: int = 0,
    assignment: Mapping[UUID, list[int]] | None = None,
) -> bytearray:
    out += INT32.pack(0) + INT16.pack(error_code)
    out += compact_string(error_message) + compact_string(member_id)
    out += INT32.pack(member_epoch) + INT32.pack(heartbeat_interval_ms)
    if assignment is None:
        out += b"\xff"
    else:
        out += b"\x01" + compact_count(len(assignment))
        for topic_id, numbers in assignment.items():
            out += topic_id.bytes + compact_count(len(numbers))
            out += b"".join(map(INT32.pack, numbers)) + NO_TAGS
        out += NO_TAGS
    return out + NO_TAGS


def _subscriptions_response(
    out: bytearray,
    error_code: int = 0,
    client_instance_id: UUID = NO_INSTANCE_ID,
    subscription_id: int = 0,
    compression_types: Sequence[int] = (),
    push_interval_ms: int = 0,
    max_bytes: int = 0,
    delta_temporality: bool = False,
    requested_metrics: Sequence[str] = (),
    throttle_time_ms: int = 0,
) -> bytearray:
    out += INT32.pack(throttle_time_ms) + INT16.pack(error_code)
    out += client_instance_id.bytes + INT32.pack(subscription_id)
    out += compact_count(len(compression_types)) + bytes(compression_types)
    out += INT32.pack(push_interval_ms) + INT32.pack(max_bytes) + bytes([delta_temporality])
    out += compact_count(len(requested_metrics)) + b"".join(map(compact_string, requested_metrics))
    return out + NO_TAGS


def _pushed_response(out: bytearray, error_code: int = 0, throttle_time_ms: int = 0) -> bytearray:
    return out + INT32.pack(throttle_time_ms) + INT16.pack(error_code) + NO_TAGS


_HAND_MADE_RESPONSES: Mapping[int, Callable[..., bytearray]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _heartbeat_response,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _subscriptions_response,
    ApiKey.PUSH_TELEMETRY: _pushed_response,
}


def _build(data_class: Any, version: int, values: Mapping[str, Any]) -> Any:
    """kafka-python's object for a struct, without the fields that the version does not have."""
    structs, absent = _fields(data_class, version)
    built = {}
    for name, value in values.items():
        struct = structs.get(name)
        if struct is not None and isinstance(value, dict):
            built[name] = _build(struct, version, value)
        elif struct is not None and isinstance(value, list | tuple):
            built[name] = [_build(struct, version, element) for element in value]
        elif name not in absent:
            built[name] = value  # the class refuses an unknown name
    return data_class(version=version, **built)


@cache
def _fields(data_class: Any, version: int) -> tuple[dict[str, Any], frozenset[str]]:
    """The classes of the fields that are structs or arrays of them, and what this version lacks."""
    there = {name: each for name, each in data_class.fields.items() if each.for_version_q(version)}
    structs = {
        name: each.data_class
        for name, each in there.items()
        if each.is_struct() or each.is_struct_array()
    }
    return structs, frozenset(data_class.fields) - frozenset(there)
