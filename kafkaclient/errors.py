"""Every error of this package, under one root: :class:`KafkaError`.

:class:`BrokerError` and its subclasses are a broker's error codes
(:func:`kafkaclient.broker_errors.broker_error` makes them). All others arise in this client.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.types import BulkMetadata, TopicPartition

__all__ = [
    "AdminStateError",
    "AdminTimeoutError",
    "AuthenticationError",
    "AuthorizationError",
    "BootstrapError",
    "BrokerConnectionError",
    "BrokerError",
    "BufferFullError",
    "BulkDeliveryError",
    "BulkFailure",
    "CheckpointMismatchError",
    "ConfigError",
    "ConsumerStateError",
    "CorruptBatchError",
    "DeliveryTimeoutError",
    "DeserializationError",
    "EncodingError",
    "FetchTimeoutError",
    "FlushTimeoutError",
    "InvalidRecordError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaTimeoutError",
    "LeaderChangedError",
    "LogTruncatedError",
    "MetadataTimeoutError",
    "NoOffsetError",
    "NotEnoughReplicasError",
    "OffsetOutOfRangeError",
    "PartitionLimitRaceError",
    "PartitionOutOfRangeError",
    "PartitionerError",
    "PolicyViolationError",
    "ProcessingError",
    "ProducerClosedError",
    "ProducerFencedError",
    "ProducerStateError",
    "ProtocolError",
    "ReaderStateError",
    "ReassignmentError",
    "RecordTooLargeError",
    "RefusedRecordError",
    "RegistryUnavailableError",
    "RequestTimedOutError",
    "SaslAuthenticationError",
    "SequenceError",
    "SerializationError",
    "SslAuthenticationError",
    "StateStoreError",
    "StoreUnavailableError",
    "StreamsError",
    "TaskAssignmentError",
    "TopicExistsError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionLostError",
    "TransactionTimeoutError",
    "UnknownTopicError",
    "UnreadableBatchError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
]


class KafkaError(Exception):
    """The root of all errors raised by this package."""

    retriable: bool = False
    """Whether the same call may succeed later."""

    code: int | None = None
    """The broker's error code, or None for an error that arose in this client."""

    maybe_written: bool = False
    """Of a failed record: whether it may be in the log all the same, because an attempt to send it
    ended without a clear answer."""

    delivery: Any = None
    """The ``BulkDelivery`` of the records that ``send_many`` or ``send_arrow`` had appended before
    this error; None for other calls."""

    def for_one(self) -> Self:
        """A copy for one of several callers. An error that is raised to all callers would keep the
        variables of all their frames."""
        own = copy(self)
        own.__cause__ = self.__cause__
        return own


def safe_repr(what: object) -> str:
    """``repr(what)``, also if its ``__repr__``, which may be the application's, raises."""
    try:
        return repr(what)
    except BaseException:  # noqa: BLE001 - the error must not be lost for another one
        return f"{type(what).__name__} (its __repr__ raises an exception)"


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2,000 records``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def defect(
    what: str, cause: BaseException | None = None, kind: type[KafkaError] = KafkaError
) -> KafkaError:
    """The error for a defect of this package: ``what`` failed, because of ``cause``."""
    problem = what if cause is None else f"{what} failed: {safe_repr(cause)}"
    error = kind(f"{problem}; this is a defect of kafkaclient, please report it")
    error.__cause__ = cause
    return error


# --- errors that arise in this client -------------------------------------------------------------


class ConfigError(KafkaError, ValueError):
    """An option is unknown, of the wrong type, out of range or in conflict with another option."""


class InvalidRecordError(KafkaError, ValueError):
    """A record's topic, key, value, headers, timestamp or partition is not accepted."""

    index: int | None = None
    """The index of the record in ``send_many``, or of the row in ``send_arrow``, from 0."""


class SerializationError(InvalidRecordError):
    """A serializer raised an exception, its result is not bytes, or it has not finished in time."""


class RecordTooLargeError(InvalidRecordError):
    """A record is larger than ``max.request.size``, ``buffer.memory`` or the topic's limit."""


class PartitionOutOfRangeError(InvalidRecordError):
    """The record's explicit partition does not exist in the topic."""


class PartitionerError(InvalidRecordError):
    """A custom partitioner raised an exception, or its result is not a partition of the topic."""


class ProducerStateError(KafkaError, RuntimeError):
    """The producer's state does not allow the call: it is not started, or in another event loop. Or
    a batch of ``create_batch`` is closed, or was sent before."""


class ProducerClosedError(ProducerStateError):
    """The producer was stopped, maybe before the record was delivered."""


class AdminStateError(KafkaError, RuntimeError):
    """The admin client's state does not allow the call: it is not started, or closed."""


class ReaderStateError(KafkaError, RuntimeError):
    """The reader's state does not allow the call: it is not started, closed, or two tasks use the
    same read."""


class ConsumerStateError(KafkaError, RuntimeError):
    """The consumer's state does not allow the call: it is not started, closed, has no group, the
    partition is not assigned to it, or two tasks take records at the same time."""


class NoOffsetError(KafkaError):
    """The group has no offset for a partition, and ``auto.offset.reset`` is none (Java:
    ``NoOffsetForPartitionException``). Seek the partition, or commit an offset."""

    topic_partition: TopicPartition


class DeserializationError(KafkaError):
    """A consumer or a streams application cannot deserialize a record (Java:
    ``RecordDeserializationException``); ``__cause__`` is the deserializer's exception."""

    topic_partition: TopicPartition
    offset: int
    field: Literal["key", "value"] | None = None
    """Which part of the record; None if that is not known."""


class RegistryUnavailableError(KafkaError):
    """The schema registry gave no usable answer, so a record could not be deserialized. The record
    is not skipped: a new loop begins with it."""

    retriable = True


class UnreadableBatchError(KafkaError):
    """A batch in the log cannot be read: its checksum is wrong, it cannot be decompressed, its
    format is older than Kafka 0.11, or its bytes are not records."""

    topic_partition: TopicPartition
    offset: int
    """The next offset to read. The read has returned all records before it."""
    next_offset: int | None = None
    """The first offset after the batch, for a new read; None if it is not known."""


class TransactionAbortableError(KafkaError):
    """The transaction accepts no more records and no commit; abort it, then begin a new one.
    ``__cause__`` is the reason: a record that failed, or an error of the broker."""


class TransactionAbortedError(KafkaError):
    """The record's transaction was aborted: consumers with ``read_committed`` never see the record.
    ``__cause__`` is the reason, unless the application aborted it."""


class BufferFullError(KafkaError):
    """``buffer.memory`` is full. ``send_nowait`` raises at once, ``send`` after max.block.ms."""

    retriable = True
    holder: str = ""
    """Which brokers' records fill the buffer; empty if that is not known."""


class ProtocolError(KafkaError):
    """A peer sent bytes that are not the Kafka protocol. The connection is closed."""


class EncodingError(KafkaError, ValueError):
    """A request was not sent because a value cannot be encoded: a str that is not valid Unicode or
    too long, a number out of range, a value of another type."""


class UnsupportedVersionError(KafkaError):
    """The broker and this client have no common version of an API that the call needs."""


class TaskAssignmentError(KafkaError):
    """Tasks of a streams application cannot be assigned, or an assignment cannot be used: this
    client does not know its version, or it contradicts itself."""


class StreamsError(KafkaError):
    """An instance of a streams application cannot continue: an input topic is missing, its group or
    the brokers are not available, the leader has ended the application, or a record takes longer
    than ``transaction.timeout.ms``."""


class ProcessingError(StreamsError):
    """A processor of a streams application failed on a record; ``__cause__`` is its exception."""

    topic_partition: TopicPartition
    offset: int


class StoreUnavailableError(KafkaError):
    """This instance of a streams application cannot answer a query: another instance has the key,
    or the state is being restored. :attr:`instance` answers queries for the key."""

    retriable = True
    instance: tuple[str, int] | None = None
    """``application.server`` of the instance that has the key: host and port. None: this instance,
    or the address is not known."""


class StateStoreError(KafkaError):
    """The state of a streams application cannot be used: another process uses its directory, a file
    is damaged, the disk is full, or a changelog does not fit. Committed state is in the
    changelog."""


class CheckpointMismatchError(KafkaError):
    """The checkpoint of a Spark query with ``exactlyOnce`` contradicts the query's decisions: it
    was restored or copied. The decided transactions are committed, and no others."""


class BrokerConnectionError(KafkaError):
    """A connection could not be made, or was lost before the response."""

    retriable = True


class BootstrapError(BrokerConnectionError):
    """No bootstrap server could be reached."""


class AuthenticationError(KafkaError):
    """Authentication of the client or the broker failed, or the listener does not match
    ``security.protocol``. A retry helps only after a change of the configuration."""


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed: a certificate is not trusted, not for this host, expired or
    missing, or one side does not use TLS."""


class SaslAuthenticationError(AuthenticationError):
    """The broker refused the credentials (then ``code`` is 58, and the text has its message), or
    could not prove that it knows them (SCRAM)."""


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not accept ``sasl.mechanism``. The text names the mechanisms it accepts."""


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A time limit has expired."""

    retriable = True


class MetadataTimeoutError(KafkaTimeoutError):
    """The topic's metadata did not arrive within ``max.block.ms``."""


class RequestTimedOutError(KafkaTimeoutError):
    """A broker did not answer a request within ``request.timeout.ms``."""


class FetchTimeoutError(KafkaTimeoutError):
    """A partition could not be fetched for ``max.block.ms``; ``__cause__`` is the last failure. A
    new read can start at ``offset``."""

    topic_partition: TopicPartition
    offset: int


class DeliveryTimeoutError(KafkaTimeoutError):
    """A record was not acknowledged within ``delivery.timeout.ms`` after ``send``. Or it was not
    appended in time, because the serializer of an earlier record of its topic has not finished."""


class AdminTimeoutError(KafkaTimeoutError):
    """A call of the admin client did not finish within ``default.api.timeout.ms``, or its own time
    limit. The change may have been made."""


class ReassignmentError(KafkaError):
    """Some partitions did not get their planned replicas, or throttles remain. The rest of the plan
    is done."""

    failures: Mapping[Any, KafkaError] = {}
    """The error by :class:`~kafkaclient.TopicPartition`."""


class TransactionTimeoutError(KafkaTimeoutError):
    """A call on a transaction did not finish within ``max.block.ms``. It continues in the
    background. The same call again waits for its outcome."""


class BulkFailure(NamedTuple):
    """How many records of a partition failed with one kind of error, and the first such error.

    ``partition`` is -1 for records that had no partition yet.
    """

    partition: int
    records: int
    error: KafkaError


class BulkDeliveryError(KafkaError):
    """Records of ``send_many`` or ``send_arrow`` were not delivered; ``__cause__`` is the first
    failure. It is ``retriable`` if all failures are; a retry writes delivered records again."""

    records: int = 0
    """How many records were appended."""

    failures: tuple[BulkFailure, ...] = ()
    """The failed records by partition and kind of error."""

    delivered: BulkMetadata
    """Where the delivered records were written."""

    @property
    def failed(self) -> int:
        """How many records failed."""
        return sum(failure.records for failure in self.failures)


class FlushTimeoutError(KafkaTimeoutError):
    """``flush(timeout)`` ended before every record was delivered."""

    undelivered: int = 0
    """How many records were still undelivered."""


# --- a broker's error codes -----------------------------------------------------------------------


class BrokerError(KafkaError):
    """An error code in a broker's response; ``name`` is Kafka's name of the code."""

    name: str = "UNKNOWN_SERVER_ERROR"
    refuses_record: bool = False
    """Whether the broker refused this record, not another one of its batch (KIP-467)."""
    invalid_metadata: ClassVar[bool] = False


class LeaderChangedError(BrokerError):
    """The broker is not the partition's leader, or the partition has no leader."""

    retriable = True


class UnknownTopicError(BrokerError):
    """The topic or partition does not exist, according to the cluster's metadata."""

    retriable = True


class OffsetOutOfRangeError(BrokerError):
    """The requested offset is not in the log: retention has deleted it, or it is after the end."""

    topic_partition: TopicPartition | None = None
    offset: int = -1
    """The requested offset."""
    available: tuple[int, int] | None = None
    """The log start offset and the log end offset (with read_committed: the last stable offset);
    None if they are not known."""


class LogTruncatedError(OffsetOutOfRangeError):
    """Records that were read are not in the log any more, because a replica that had not copied
    them became the leader (KIP-320). The log may have other records at their offsets (Java:
    ``LogTruncationException``)."""

    truncated_to: int = -1
    """The offset from which on the log has other records, or none."""


class InvalidTopicError(BrokerError, InvalidRecordError):
    """The topic name is invalid. This client checks it as Java's ``Topic.validate`` does; a broker
    may refuse more names."""

    code: int | None = 17
    name = "INVALID_TOPIC_EXCEPTION"


class RefusedRecordError(BrokerError, InvalidRecordError):
    """The broker's validation refused the record, for example because a compacted topic needs a
    key, or the timestamp is out of the topic's range."""


class CorruptBatchError(BrokerError):
    """The broker received a damaged batch: its checksum is wrong."""

    retriable = True


class NotEnoughReplicasError(BrokerError):
    """The partition has fewer in-sync replicas than ``min.insync.replicas``."""

    retriable = True


class AuthorizationError(BrokerError):
    """The principal lacks a permission (ACL)."""


class SequenceError(BrokerError):
    """The batch's sequence number does not match the broker's record of this producer."""


class ProducerFencedError(BrokerError):
    """A newer producer with the same transactional id or producer id has fenced this one."""


class TransactionLostError(BrokerError):
    """A prepared transaction cannot be committed or aborted, because it is no longer open."""


class TopicExistsError(BrokerError):
    """A topic with this name exists."""


class PolicyViolationError(BrokerError):
    """A policy of the cluster, or its partition limits (KIP-578), do not allow the request. Nothing
    was changed. The attributes are set if this client's limits refused it."""

    code: int | None = 44
    name = "POLICY_VIOLATION"

    max_broker_partitions: int | None = None
    """The limit of replicas per broker; None is no limit."""
    max_partitions: int | None = None
    """The limit of the cluster; None is no limit."""
    remaining: Mapping[int, int] = {}
    """How many more replicas each broker can have; empty without a limit per broker."""


class PartitionLimitRaceError(PolicyViolationError):
    """The request was carried out. Together with a simultaneous change of another client it exceeds
    a partition limit. Both changes remain, except that ``Reassigner.begin`` and
    ``Admin.throttled`` cancel their moves before they raise it."""
