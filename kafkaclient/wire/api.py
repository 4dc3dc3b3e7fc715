"""The base class of all Kafka calls: an API key, a range of versions, an encoder, a decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    DESCRIBE_QUORUM = 55
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_DESCRIBE = 69


class BrokerInfo(NamedTuple):
    """A broker, with the address that it advertises."""

    node_id: int
    host: str
    port: int
    rack: str | None

    @classmethod
    def read_array(cls, reader: Reader) -> tuple[BrokerInfo, ...]:
        """The brokers in an array of a response; raises ProtocolError if the bytes are not one."""
        return tuple([cls._read(reader) for _ in reader.array(_MIN_BROKER)])

    @classmethod
    def _read(cls, reader: Reader) -> BrokerInfo:
        broker = cls(reader.int32(), reader.string(), reader.int32(), reader.nullable_string())
        reader.tagged_fields()
        return broker

    @classmethod
    def read_tag(cls, tag: Buffer | None) -> tuple[BrokerInfo, ...]:
        """The brokers in a tagged field (KIP-951): the addresses of new leaders."""
        return () if tag is None else cls.read_array(Reader(tag, flexible=True))


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
