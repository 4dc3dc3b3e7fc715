"""The control calls, and the one place that knows kafka-python.

kafka-python's ``kafka.protocol`` is generated from Apache Kafka's own message schemas. Everything
but what must be fast, Produce (``produce.py``) and Metadata (``metadata.py``), is encoded and
decoded by it, behind the calls below, which the rest of the package sees as plain values. At the
end of the file stands the broker's side of the same codec, for the fake cluster.

Importing it costs most of a second, because ``import kafka`` loads all of kafka-python's clients
whatever is asked of it; that is paid at import time, never inside a running event loop.
"""

from __future__ import annotations

import struct
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api import ApiKey, BrokerInfo, Call
from kafkaclient.wire.metadata import MetadataCall
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.results import (
    ApiVersions,
    CreateTopicsResult,
    DeleteTopicsResult,
    InitProducerIdResult,
    ListOffsetsResult,
    MetadataResult,
    PartitionOffset,
    TopicInfo,
    TopicOutcome,
)

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 and 3.12 called deprecated (3.13 no longer
    # does); an application that turns warnings into errors could not import this package.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl
    from kafka.protocol.api_message import ApiMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.types import Buffer

__all__ = [
    "EARLIEST_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "ApiVersions",
    "ApiVersionsCall",
    "BrokerInfo",
    "CodecCall",
    "CreateTopicsCall",
    "CreateTopicsResult",
    "DeleteTopicsCall",
    "DeleteTopicsResult",
    "InitProducerIdCall",
    "InitProducerIdResult",
    "ListOffsetsCall",
    "ListOffsetsResult",
    "MetadataCall",
    "MetadataResult",
    "NewTopic",
    "PartitionOffset",
    "RequestFrame",
    "TopicInfo",
    "TopicOutcome",
    "decode_request",
    "encode_response",
    "or_unknown",
]

T = TypeVar("T")
_R = TypeVar("_R")

# What kafka-python's decoders raise on bytes that are not the message they expect.
_MALFORMED = (
    struct.error,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
)


def _request_classes() -> dict[int, tuple[type[ApiMessage], type[ApiMessage]]]:
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


_CLASSES = _request_classes()


def _has_flexible_header(response: type[ApiMessage], version: int) -> bool:
    # An ApiVersions answer keeps the old header for ever: who asks does not know yet which
    # versions the broker speaks (KIP-511).
    if response.API_KEY == ApiKey.API_VERSIONS:
        return False
    flexible: bool = response.flexible_version_q(version)
    return flexible


def _guarded(what: str, read: Callable[[], _R]) -> _R:
    try:
        return read()
    except _MALFORMED as error:
        raise ProtocolError(f"malformed {what}: {type(error).__name__}: {error}") from error


class CodecCall(Call[T], ABC, Generic[T]):
    """A call encoded by kafka-python: subclasses map values to its messages and back."""

    @abstractmethod
    def _fields(self, version: int) -> dict[str, Any]:
        """The request's fields; nested structs as dicts."""

    @abstractmethod
    def _result(self, message: Any) -> T:
        """The value of a decoded response."""

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        request = _build(_CLASSES[self.api_key][0], version, self._fields(version))
        request.with_header(correlation_id=correlation_id, client_id=client_id)
        return bytes(request.encode(header=True, framed=True))

    def decode(self, version: int, payload: Buffer) -> T:
        response = _CLASSES[self.api_key][1]
        reader = Reader(payload, flexible=_has_flexible_header(response, version))
        reader.skip_tagged_fields()
        body = reader.data[reader.position :]
        return _guarded(
            f"{self.api_key.name} v{version} response of {len(payload)} bytes",
            lambda: self._result(response.decode(body, version=version)),
        )


# --- ApiVersions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApiVersionsCall(CodecCall[ApiVersions]):
    """What the broker speaks (KIP-35); the first call on every connection.

    A broker that does not know the version asked for answers in version 0 with
    UNSUPPORTED_VERSION and the range it knows (KIP-511); that answer is decoded as well.
    """

    api_key: ClassVar[ApiKey] = ApiKey.API_VERSIONS
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 4
    software_name: str = "kafkaclient"
    software_version: str = "0"

    def _fields(self, version: int) -> dict[str, Any]:
        if version < 3:
            return {}
        return {
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
        }

    def _result(self, message: Any) -> ApiVersions:
        ranges = {api.api_key: (api.min_version, api.max_version) for api in message.api_keys}
        features = {f.name: f.max_version_level for f in message.finalized_features or ()}
        return ApiVersions(message.error_code, ranges, message.throttle_time_ms or 0, features)


# --- InitProducerId -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitProducerIdCall(CodecCall[InitProducerIdResult]):
    """A new producer id, or (KIP-360, version 3 on) the next epoch of the one given."""

    api_key: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 5
    transactional_id: str | None = None
    timeout_ms: int = 60_000
    producer_id: int = -1
    producer_epoch: int = -1

    def _fields(self, version: int) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms,
        }
        if version >= 3:
            fields |= {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        return fields

    def _result(self, message: Any) -> InitProducerIdResult:
        return InitProducerIdResult(
            error_code=message.error_code,
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            throttle_ms=message.throttle_time_ms,
        )


# --- CreateTopics, DeleteTopics ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 takes the broker's default, from version 4 on (KIP-464).

    ``assignments`` maps every partition to its replicas, the preferred leader first; when it is
    given, ``partitions`` and ``replication_factor`` must be -1.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopicsCall(CodecCall[CreateTopicsResult]):
    """Create topics. ``timeout_ms``: how long the broker waits for them to exist everywhere."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS
    min_version: ClassVar[int] = 2
    max_version: ClassVar[int] = 7
    topics: tuple[NewTopic, ...]
    timeout_ms: int = 30_000
    validate_only: bool = False

    def _fields(self, version: int) -> dict[str, Any]:
        return {
            "topics": [_new_topic(topic) for topic in self.topics],
            "timeout_ms": self.timeout_ms,
            "validate_only": self.validate_only,
        }

    def _result(self, message: Any) -> CreateTopicsResult:
        outcomes = tuple(
            TopicOutcome(
                t.name,
                t.error_code,
                t.error_message,
                or_unknown(t.num_partitions),
                or_unknown(t.replication_factor),
            )
            for t in message.topics
        )
        return CreateTopicsResult(outcomes, message.throttle_time_ms)


def or_unknown(count: int | None) -> int:
    """A count that older versions of an answer leave out."""
    return -1 if count is None else count


def _new_topic(topic: NewTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [
            {"partition_index": partition, "broker_ids": list(brokers)}
            for partition, brokers in topic.assignments.items()
        ],
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }


@dataclass(frozen=True, slots=True)
class DeleteTopicsCall(CodecCall[DeleteTopicsResult]):
    """Delete topics by name."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS
    min_version: ClassVar[int] = 1
    max_version: ClassVar[int] = 6
    topics: tuple[str, ...]
    timeout_ms: int = 30_000

    def _fields(self, version: int) -> dict[str, Any]:
        # Version 6 can name topics by id as well, and therefore wraps the names in structs.
        if version >= 6:
            return {"topics": [{"name": t} for t in self.topics], "timeout_ms": self.timeout_ms}
        return {"topic_names": list(self.topics), "timeout_ms": self.timeout_ms}

    def _result(self, message: Any) -> DeleteTopicsResult:
        outcomes = tuple(
            TopicOutcome(t.name, t.error_code, t.error_message)
            for t in message.responses
            if t.name is not None
        )
        return DeleteTopicsResult(outcomes, message.throttle_time_ms)


# --- ListOffsets ----------------------------------------------------------------------------

LATEST_TIMESTAMP = -1
"""Asks for the offset that the next record will get."""
EARLIEST_TIMESTAMP = -2
"""Asks for the first offset that is kept."""


@dataclass(frozen=True, slots=True)
class ListOffsetsCall(CodecCall[ListOffsetsResult]):
    """Offsets by timestamp (default: the end). Must go to the partitions' leader.

    With ``read_committed`` the end is where the oldest open transaction begins. With ``replica_id``
    -2 any replica tells where its own log ends, or begins.
    """

    # Later versions add special timestamps that nothing here asks for.
    api_key: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS
    min_version: ClassVar[int] = 1
    max_version: ClassVar[int] = 7
    partitions: Mapping[str, tuple[int, ...]]
    timestamp: int = LATEST_TIMESTAMP
    read_committed: bool = False
    replica_id: int = -1

    def _fields(self, version: int) -> dict[str, Any]:
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": partition, "timestamp": self.timestamp}
                    for partition in partitions
                ],
            }
            for topic, partitions in self.partitions.items()
        ]
        isolation = 1 if self.read_committed and version >= 2 else 0
        return {"replica_id": self.replica_id, "isolation_level": isolation, "topics": topics}

    def _result(self, message: Any) -> ListOffsetsResult:
        offsets = tuple(
            PartitionOffset(
                topic=topic.name,
                partition=p.partition_index,
                error_code=p.error_code,
                offset=p.offset,
                timestamp=p.timestamp,
                leader_epoch=p.leader_epoch,
            )
            for topic in message.topics
            for p in topic.partitions
        )
        return ListOffsetsResult(offsets, message.throttle_time_ms or 0)


# --- the broker's side ------------------------------------------------------------------------


class RequestFrame(NamedTuple):
    """A decoded request. ``message`` is kafka-python's object, fields in snake case.

    It is None when the codec does not know the API or its version; a broker answers that with
    UNSUPPORTED_VERSION (an ApiVersions request: in version 0 of the answer).
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
    """Read a request as a broker does, from the bytes that follow the frame's 4-byte size.

    Raises :class:`~kafkaclient.errors.ProtocolError` when they are not a request.
    """
    reader = Reader(frame, flexible=False)
    api_key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    client_id = reader.nullable_string()
    request, _ = _CLASSES.get(api_key, (None, None))
    if request is None or not 0 <= version <= request.max_version:
        return RequestFrame(api_key, version, correlation_id, client_id, None)
    reader.flexible = request.flexible_version_q(version)
    reader.skip_tagged_fields()
    body = reader.data[reader.position :]
    message = _guarded(
        f"{request.__name__} v{version} of {len(frame)} bytes",
        lambda: request.decode(body, version=version),
    )
    return RequestFrame(api_key, version, correlation_id, client_id, message)


def encode_response(api_key: int, version: int, correlation_id: int, **fields: Any) -> bytes:
    """A response as a broker sends it: 4-byte size, header, body.

    Fields have the schema's names in snake case; a nested struct is a dict, an array of structs a
    list of dicts, and whatever is left out takes the schema's default. A name the schema does not
    have is a ValueError; one that this version does not have is ignored.
    """
    response = _build(_CLASSES[api_key][1], version, fields)
    response.with_header(correlation_id=correlation_id)
    return bytes(response.encode(header=True, framed=True))


def _build(data_class: Any, version: int, values: Mapping[str, Any]) -> Any:
    """kafka-python's object for a struct, its nested structs built from dicts."""
    built = {}
    for name, value in values.items():
        schema = data_class.fields.get(name)
        if schema is not None and not schema.for_version_q(version):
            continue
        if isinstance(value, dict) and schema is not None and schema.is_struct():
            built[name] = _build(schema.data_class, version, value)
        elif isinstance(value, (list, tuple)) and schema is not None and schema.is_struct_array():
            built[name] = [_build(schema.data_class, version, element) for element in value]
        else:
            built[name] = value  # an unknown name is refused by the class
    return data_class(version=version, **built)
