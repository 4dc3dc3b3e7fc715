"""What every Kafka call has in common: its API key, its versions, its two directions of bytes."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from kafkaclient.wire.reader import Reader

__all__ = ["ApiKey", "BrokerInfo", "Call"]

T_co = TypeVar("T_co", covariant=True)


class ApiKey(IntEnum):
    """The request types that clients use, as numbered by the Kafka protocol."""

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
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class BrokerInfo(NamedTuple):
    """A broker and the address it advertises, as told by a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None

    @classmethod
    def read(cls, reader: Reader) -> BrokerInfo:
        """As it stands in answers; raises ProtocolError for bytes that are not one."""
        broker = cls(reader.int32(), reader.string(), reader.int32(), reader.nullable_string())
        reader.skip_tagged_fields()
        return broker


class Call(Protocol[T_co]):
    """One request with the way to read its answer; values only, nothing that does I/O."""

    api_key: ClassVar[ApiKey]
    min_version: ClassVar[int]
    """The oldest version this client can speak."""
    max_version: ClassVar[int]
    """The newest version this client can speak."""

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        """The whole frame: 4-byte size, request header, body."""
        ...

    def decode(self, version: int, payload: bytes | memoryview) -> T_co:
        """The answer, from the bytes that follow the frame's size and correlation id.

        Raises :class:`~kafkaclient.errors.ProtocolError` when they are not such an answer.
        """
        ...
