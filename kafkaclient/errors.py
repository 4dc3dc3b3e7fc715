"""Every error of this package, under one root: :class:`KafkaError`.

Two families: what a broker answered (:class:`BrokerError` and its subclasses, made from a numeric
code by :func:`kafkaclient.broker_errors.broker_error`), and what happened on this side (all
others). ``retriable`` tells whether the same call may succeed later; ``code`` is the broker's error
code, or None.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

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
    "MetadataTimeoutError",
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
    "RequestTimedOutError",
    "SaslAuthenticationError",
    "SequenceError",
    "SerializationError",
    "SslAuthenticationError",
    "StateStoreError",
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
    """Whether the same call may succeed when it is made again later."""

    code: int | None = None
    """The broker's error code, or None when the error arose in this process."""

    delivery: Any = None
    """The ``BulkDelivery`` of what ``send_many`` or ``send_arrow`` had handed over when this error
    ended them; None on errors of anything else."""

    def for_one(self) -> Self:
        """A copy to raise to one of several callers: an error keeps the frames of all whom it was
        raised to, and what their variables hold."""
        own = copy(self)
        own.__cause__ = self.__cause__
        return own


def defect(
    what: str, cause: BaseException | None = None, kind: type[KafkaError] = KafkaError
) -> KafkaError:
    """The error for a defect of this package: ``what`` failed, with ``cause`` if there is one."""
    problem = what if cause is None else f"{what} failed: {cause!r}"
    error = kind(f"{problem}; this is a defect of kafkaclient, please report it")
    error.__cause__ = cause
    return error


# --- what happened on this side -------------------------------------------------------------


class ConfigError(KafkaError, ValueError):
    """An option is unknown, of the wrong type, out of range or in conflict with another."""


class InvalidRecordError(KafkaError, ValueError):
    """A record's topic, key, value, headers, timestamp or partition is not acceptable."""

    index: int | None = None
    """Which record of ``send_many``, or row of ``send_arrow``, it is, counted from 0."""


class SerializationError(InvalidRecordError):
    """A serializer raised, or the result is not bytes."""


class RecordTooLargeError(InvalidRecordError):
    """A record is larger than ``max.request.size``, ``buffer.memory`` or the topic's limit."""

    maybe_written: bool = False
    """Whether it may be in the log nevertheless: the limit was lowered after a first attempt."""


class PartitionOutOfRangeError(InvalidRecordError):
    """The explicit partition does not exist in the topic."""


class PartitionerError(InvalidRecordError):
    """The partitioner given as an option raised, or its answer is not a partition of the topic."""


class ProducerStateError(KafkaError, RuntimeError):
    """The producer is not in a state that allows the call (not started, wrong event loop)."""


class ProducerClosedError(ProducerStateError):
    """The producer is stopped, or was stopped before the record was delivered."""


class AdminStateError(KafkaError, RuntimeError):
    """The admin client is not in a state that allows the call (not started, closed)."""


class ReaderStateError(KafkaError, RuntimeError):
    """The reader is not in a state that allows the call (not started, closed, or a read that two
    tasks take batches of at a time)."""


class UnreadableBatchError(KafkaError):
    """A batch in the log cannot be read: its checksum is wrong, it does not decompress, it is of a
    format before Kafka 0.11, or its bytes are not records."""

    topic_partition: TopicPartition
    offset: int
    """Where the read stands; all records before have been given."""
    next_offset: int | None = None
    """From where the read may go on without the batch; None when that cannot be told."""


class TransactionAbortableError(KafkaError):
    """The transaction cannot be committed any more, and nothing more can be sent in it; aborting it
    leads back. ``__cause__`` is what went wrong (a record that failed, a refusal by the broker)."""


class TransactionAbortedError(KafkaError):
    """The record belonged to a transaction that was aborted: consumers that read committed records
    only never see it. ``__cause__`` is why, unless it was the application's wish."""


class BufferFullError(KafkaError):
    """``buffer.memory`` is used up: by ``send_nowait`` at once, by ``send`` after max.block.ms."""

    retriable = True


class ProtocolError(KafkaError):
    """A peer sent bytes that are not the Kafka protocol; the connection is dropped."""


class EncodingError(KafkaError, ValueError):
    """A request was not sent because a value in it has no form in the Kafka protocol: a str that is
    not valid Unicode or too long, a number out of range, a value of another type."""


class UnsupportedVersionError(KafkaError):
    """The broker and this client share no version of an API that the call needs."""


class TaskAssignmentError(KafkaError):
    """Tasks of a streams application cannot be assigned, or an assignment cannot be taken: its
    format is of a version that this client does not speak, or it contradicts itself."""


class StreamsError(KafkaError):
    """An instance of a streams application cannot go on: a topic that it reads is missing, its
    group or the brokers cannot be had, the leader has ended the application, or a record takes
    longer than its transaction may."""


class DeserializationError(StreamsError):
    """A record that a streams application reads cannot be decoded. Java:
    ``RecordDeserializationException``."""

    topic_partition: TopicPartition
    offset: int


class ProcessingError(StreamsError):
    """A processor of a streams application failed at a record; ``__cause__`` is what it raised."""

    topic_partition: TopicPartition
    offset: int


class StateStoreError(KafkaError):
    """The state of a streams application cannot be used: its directory is another process's, a file
    is damaged, the disk is full, or a changelog does not fit. What was committed is not lost: the
    changelog has it."""


class CheckpointMismatchError(KafkaError):
    """The checkpoint of a Spark query with ``exactlyOnce`` does not fit what the query has decided:
    it was put back or copied. What was decided is committed, and nothing else."""


class BrokerConnectionError(KafkaError):
    """A connection could not be made, or was lost before the answer came."""

    retriable = True


class BootstrapError(BrokerConnectionError):
    """None of the bootstrap servers could be reached."""


class AuthenticationError(KafkaError):
    """One side could not prove to the other who it is, or the listener is of another kind than
    ``security.protocol`` says. Trying again helps only when something has been changed."""


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed: a certificate is not trusted, not for this host, expired or
    missing, or one side does not speak TLS."""


class SaslAuthenticationError(AuthenticationError):
    """The broker refused the credentials, or could not prove that it knows them (SCRAM). ``code``
    is 58 when the broker said so; its message is part of the text."""


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not accept ``sasl.mechanism``; the text names those that it offers."""


class KafkaTimeoutError(KafkaError, TimeoutError):
    """Something did not happen in the time given for it."""

    retriable = True


class MetadataTimeoutError(KafkaTimeoutError):
    """The topic's metadata did not arrive within ``max.block.ms``."""


class RequestTimedOutError(KafkaTimeoutError):
    """A broker did not answer a request within ``request.timeout.ms``."""


class FetchTimeoutError(KafkaTimeoutError):
    """A partition could not be fetched for ``max.block.ms``; ``__cause__`` is what failed last. A
    new read may go on at ``offset``."""

    topic_partition: TopicPartition
    offset: int


class DeliveryTimeoutError(KafkaTimeoutError):
    """A record was not acknowledged within ``delivery.timeout.ms`` of being sent."""

    maybe_written: bool = False
    """Whether the record may be in the log nevertheless (its request had left)."""


class AdminTimeoutError(KafkaTimeoutError):
    """A call of the admin client did not come to its end within ``default.api.timeout.ms`` (or the
    time given with the call). What it asked for may have been done."""


class ReassignmentError(KafkaError):
    """Partitions did not get the replicas that they were to have, or throttles were left behind;
    the rest of the plan has been carried out."""

    failures: Mapping[Any, KafkaError] = {}
    """By :class:`~kafkaclient.TopicPartition` what did not move, and why."""


class TransactionTimeoutError(KafkaTimeoutError):
    """A call on a transaction did not come to its end within ``max.block.ms``. It goes on in the
    background; the same call made again waits for the same outcome."""


class BulkFailure(NamedTuple):
    """``records`` records of ``send_many`` or ``send_arrow`` to a partition failed in this way.

    ``error`` is the first of its kind there; ``partition`` is -1 when none had been chosen yet.
    """

    partition: int
    records: int
    error: KafkaError


class BulkDeliveryError(KafkaError):
    """Records of ``send_many`` or ``send_arrow`` were not delivered; ``__cause__`` is the first
    failure met. ``retriable`` only if all failures are; what was delivered before would be
    written again."""

    records: int = 0
    """How many records had been handed over."""

    failures: tuple[BulkFailure, ...] = ()
    """By partition and kind of error."""

    delivered: BulkMetadata
    """The others, and where they were written."""

    @property
    def failed(self) -> int:
        """How many records failed."""
        return sum(failure.records for failure in self.failures)


class FlushTimeoutError(KafkaTimeoutError):
    """``flush(timeout)`` ended before every record was delivered."""

    undelivered: int = 0
    """How many records were still undelivered."""


# --- what a broker answered -----------------------------------------------------------------


class BrokerError(KafkaError):
    """An error code in a broker's answer; ``name`` is Kafka's own name of the code."""

    name: str = "UNKNOWN_SERVER_ERROR"
    invalid_metadata: ClassVar[bool] = False


class LeaderChangedError(BrokerError):
    """The broker does not lead the partition (any more), or no broker does."""

    retriable = True


class UnknownTopicError(BrokerError):
    """The topic or partition does not exist, as far as the cluster says."""

    retriable = True


class OffsetOutOfRangeError(BrokerError):
    """The offset asked for is not in the log: it has been deleted (retention), or is past the
    end."""

    topic_partition: TopicPartition | None = None
    offset: int = -1
    """The offset asked for."""
    available: tuple[int, int] | None = None
    """The first offset in the log, and the one after the last (with read_committed: the last
    stable offset); None if that could not be learnt."""


class InvalidTopicError(BrokerError, InvalidRecordError):
    """No topic can have this name. This client refuses it at once, as Java's ``Topic.validate``; a
    broker may allow less."""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class CorruptBatchError(BrokerError):
    """The batch arrived damaged: its checksum does not match."""

    retriable = True


class NotEnoughReplicasError(BrokerError):
    """Fewer in-sync replicas than ``min.insync.replicas``."""

    retriable = True


class AuthorizationError(BrokerError):
    """The principal lacks a permission (ACL)."""


class SequenceError(BrokerError):
    """The broker's record of this producer's sequence numbers does not match the batch's."""


class ProducerFencedError(BrokerError):
    """A newer producer with the same identity has taken over."""


class TransactionLostError(BrokerError):
    """A prepared transaction cannot be ended as it should be: it is not open any more."""


class TopicExistsError(BrokerError):
    """A topic of this name exists."""


class PolicyViolationError(BrokerError):
    """The cluster's policy, or its partition limits (KIP-578), do not allow the request. Nothing
    was changed. The attributes are set when limits of this client refused it."""

    code = 44
    name = "POLICY_VIOLATION"

    max_broker_partitions: int | None = None
    """The limit of replicas per broker; None is no limit."""

    max_partitions: int | None = None
    """The limit of the cluster; None is no limit."""

    remaining: Mapping[int, int] = {}
    """By broker, how many replicas it may still take; empty without a limit per broker."""


class PartitionLimitRaceError(PolicyViolationError):
    """The request was carried out, and together with a change that another client made at the same
    time it is above a partition limit. Both changes stand; but ``Reassigner.begin`` and
    ``Admin.throttled`` have cancelled their moves when they raise it."""
