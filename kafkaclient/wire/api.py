"""The base class of all Kafka calls: an API key, a range of versions, an encoder, a decoder. Also
the values in responses to Metadata and Produce, and how requests are encoded by hand."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from kafkaclient.types import Buffer


T_co = TypeVar("T_co", covariant=True)

_MIN_BROKER = 10  # bytes


class ApiKey(IntEnum):
    """The request types that this package uses, with the numbers of the Kafka protocol."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_QUORUM = 55
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72


class BrokerInfo(NamedTuple):
    """A broker, with the address that it advertises."""

    node_id: int
    host: str
    port: int
    rack: str | None

    @classmethod
    def read_array(cls, reader: FieldReader) -> tuple[BrokerInfo, ...]:
        """The brokers in an array of a response; raises ProtocolError if the bytes are not one."""
        return tuple([cls._read(reader) for _ in reader.array(_MIN_BROKER)])

    @classmethod
    def _read(cls, reader: FieldReader) -> BrokerInfo:
        broker = cls(reader.int32(), reader.string(), reader.int32(), reader.nullable_string())
        reader.tagged_fields()
        return broker

    @classmethod
    def read_tag(cls, tag: Buffer | None) -> tuple[BrokerInfo, ...]:
        """The brokers in a tagged field (KIP-951): the addresses of new leaders."""
        return () if tag is None else cls.read_array(FieldReader(tag, flexible=True))


class Call(ABC, Generic[T_co]):
    """A request and the decoder of its response: values only, no I/O.

    A subclass names its API key and the range of versions that this client supports::

        class EndTxnCall(CodecCall[TxnEnded], api_key=ApiKey.END_TXN, versions=(0, 4)):
    """

    api_key: ClassVar[ApiKey]
    min_version: ClassVar[int]
    max_version: ClassVar[int]

    def __init_subclass__(
        cls, api_key: ApiKey | None = None, versions: tuple[int, int] | None = None
    ) -> None:
        if api_key is not None:
            cls.api_key = api_key
        if versions is not None:
            cls.min_version, cls.max_version = versions

    @abstractmethod
    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        """The whole frame: 4-byte size, request header, body."""

    @abstractmethod
    def decode(self, version: int, payload: Buffer) -> T_co:
        """The value of a response, from the bytes behind the frame's size and correlation id.

        Raises :class:`~kafkaclient.errors.ProtocolError` if the bytes are not such a response.
        """


def malformed(
    call: Call[object], version: int, payload: Buffer, error: ProtocolError
) -> ProtocolError:
    """The error for bytes that are not a response to the call, with what was wrong with them."""
    what = f"{call.api_key.name} v{version} response of {len(payload)} bytes"
    return ProtocolError(f"malformed {what}: {error}")


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The partition numbers of each topic, as requests group them."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return topics


# --- Writes the Kafka protocol's primitive types --------------------------------------------------

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

NO_TAGS = b"\x00"
"""The end of a struct without tagged fields (KIP-482)."""

_REQUEST_HEADER = struct.Struct(">hhi")

# The same few texts and numbers are written in every request.
_cached = lru_cache(maxsize=1024)


def request(
    api_key: int, version: int, correlation_id: int, client_id: str, *, flexible: bool
) -> bytearray:
    """The beginning of a request: 4 bytes for the frame's size, and the header."""
    frame = bytearray(INT32.size)
    frame += _REQUEST_HEADER.pack(api_key, version, correlation_id)
    frame += string(client_id)  # never compact: see the schema of RequestHeader
    return frame + NO_TAGS if flexible else frame


def framed(request: bytearray) -> bytes:
    """The request, with its size in the first 4 bytes."""
    INT32.pack_into(request, 0, len(request) - INT32.size)
    return bytes(request)


@_cached
def string(text: str | None) -> bytes:
    """A string with a length of 2 bytes; raises ValueError for more than 32767 bytes."""
    if text is None:
        return INT16.pack(-1)
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ValueError(f"string of {len(encoded)} bytes; at most 32767 fit")
    return INT16.pack(len(encoded)) + encoded


@_cached
def compact_string(text: str | None) -> bytes:
    if text is None:
        return uvarint(0)
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


@_cached
def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_count(elements: int) -> bytes:
    """The length of an array in a flexible version (KIP-482); -1: the array is null."""
    return uvarint(elements + 1)


# --- The values in responses to Metadata and Produce ----------------------------------------------


class PartitionView(NamedTuple):
    """A partition and its leader; ``leader`` is -1 if there is none. ``leader_epoch`` is -1 if the
    broker that sent the metadata does not know epochs."""

    partition: int
    leader: int = -1
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic in the metadata. ``topic_id`` is None before Kafka 2.8 (Metadata v10)."""

    name: str
    error_code: int
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionView, ...]


@dataclass(frozen=True, slots=True)
class MetadataResult:
    """The response to Metadata; ``error_code`` is 0 before version 13 (KIP-1102)."""

    brokers: tuple[BrokerInfo, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[TopicInfo, ...]
    throttle_ms: int
    error_code: int = 0


class RecordError(NamedTuple):
    """A record that the broker rejected: its index in the batch, and the broker's reason."""

    batch_index: int
    message: str | None


class PartitionResult(NamedTuple):
    """The outcome of one partition's batch.

    ``base_offset`` is -1 unless the batch was written. ``log_append_time_ms`` is -1 unless the
    topic has ``message.timestamp.type=LogAppendTime``. ``leader_id`` and ``leader_epoch`` are -1
    unless the broker knows a newer leader (version 10 on).
    """

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: tuple[RecordError, ...]
    error_message: str | None
    leader_id: int
    leader_epoch: int


class ProduceResult(NamedTuple):
    """The outcome of each partition, and the addresses of new leaders."""

    partitions: list[PartitionResult]
    throttle_ms: int
    endpoints: tuple[BrokerInfo, ...]
