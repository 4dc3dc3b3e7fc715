"""aiokafka's value types, its `BatchBuilder` and its partitioners, and what its users reach through
`producer.client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from aiokafka.partitioner import DefaultPartitioner

from kafkaclient.aiokafka.errors import Translation
from kafkaclient.aiokafka.options import timestamp_as_int
from kafkaclient.errors import ProducerStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import ClusterView, Consumer, LoadView, Producer, RecordBatchBuilder
    from kafkaclient.types import HeadersLike

__all__ = [
    "DEFAULT_PARTITIONER",
    "AppendedRecord",
    "BatchBuilder",
    "CallablePartitioner",
    "ClientFacade",
    "ClusterFacade",
    "GroupFacade",
    "RecordMetadata",
    "TopicPartition",
    "option_for",
    "prediction",
]


# --- aiokafka's RecordMetadata and TopicPartition. aiokafka has no type annotations ---------------

if TYPE_CHECKING:

    class TopicPartition(NamedTuple):
        """A topic's name and a partition's number."""

        topic: str
        partition: int

    class RecordMetadata(NamedTuple):
        """Where a record was written. ``timestamp`` is in milliseconds since the epoch;
        ``timestamp_type`` is 1 if the broker set the timestamp (LogAppendTime), otherwise 0."""

        topic: str
        partition: int
        topic_partition: TopicPartition
        offset: int
        timestamp: int | None
        timestamp_type: int
        log_start_offset: int | None

else:
    from aiokafka.structs import RecordMetadata, TopicPartition


# --- ``AIOKafkaProducer.client``: what instrumentations -------------------------------------------


class GroupFacade(NamedTuple):
    """What FastStream reads of a consumer's coordinator and subscription."""

    member_id: str
    topics: frozenset[str]


class ClusterFacade:
    """What the client knows of topics at this moment. No call waits, or sends a request."""

    def __init__(self, producer: Producer | Consumer) -> None:
        self._producer = producer

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions; None if its metadata is not known."""
        views = self._producer.known_partitions(topic)
        return None if views is None else {view.partition for view in views}

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of the topic's partitions with a leader; None if its metadata is not
        known."""
        views = self._producer.known_partitions(topic)
        return None if views is None else {view.partition for view in views if view.leader >= 0}


class ClientFacade:
    """The attributes of ``aiokafka.AIOKafkaClient`` that OpenTelemetry's instrumentation reads, and
    the metadata of the cluster."""

    def __init__(
        self, bootstrap_servers: Any, client_id: str, producer: Producer | Consumer
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self.attach(producer)

    def __repr__(self) -> str:
        return f"<ClientFacade client_id={self._client_id}>"

    def attach(self, producer: Producer | Consumer) -> None:
        """Ask this producer or consumer from now on."""
        self._producer = producer
        self.cluster: ClusterFacade = ClusterFacade(producer)

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions.

        Raises UnknownTopicOrPartitionError after ``request_timeout_ms``.
        """
        with Translation():
            views = await self._producer.partitions_for(topic)
        return {view.partition for view in views}


# --- aiokafka's argument ``partitioner`` as an option, and the partition --------------------------

_Choose: TypeAlias = "Callable[[bytes | None, list[int], list[int]], int]"

DEFAULT_PARTITIONER = DefaultPartitioner()
_BY_KEY = frozenset({"late", "kip794", "sticky", "random"})
"""The values of the option ``partitioner`` that use the hash of a key; the others ignore keys."""


class CallablePartitioner:
    """Calls aiokafka's kind of partitioner, ``choose(key, all_partitions, available)``, for every
    record without an explicit partition."""

    __slots__ = ("choose",)

    def __init__(self, choose: _Choose) -> None:
        self.choose = choose

    def partition(
        self, topic: str, key: bytes | None, _value: object, cluster: ClusterView, _load: LoadView
    ) -> int:
        view = cluster.topics[topic]
        return self.choose(key, list(range(view.partition_count)), list(view.available))


def option_for(partitioner: Any) -> Any:
    """The option ``partitioner`` of :class:`kafkaclient.Producer` for aiokafka's argument.

    None and aiokafka's DefaultPartitioner are kafkaclient's default. It selects the same partition
    for a key (murmur2). A record without key gets its partition when a broker can take the record's
    batch, instead of a random one. kafkaclient's own names and partitioners are passed on.
    """
    if partitioner is None or type(partitioner) is DefaultPartitioner:
        return "late"
    if isinstance(partitioner, str) or hasattr(partitioner, "partition"):
        return partitioner
    return CallablePartitioner(partitioner) if callable(partitioner) else partitioner


def prediction(producer: Producer) -> Callable[..., int | None]:
    """A function like aiokafka's partitioners that tells, before a record is sent, which partition
    the record will get. It returns None if the producer chooses the partition later.

    A partitioner of kafkaclient is not asked beforehand: its answer may depend on the load.
    """
    chosen = producer.config.partitioner
    if isinstance(chosen, CallablePartitioner):
        return chosen.choose
    if (
        isinstance(chosen, str)
        and chosen in _BY_KEY
        and not producer.config.partitioner_ignore_keys
    ):
        return _by_key
    return _chosen_later


def _by_key(key: bytes | None, everything: list[int], available: list[int]) -> Any:
    return None if key is None else DEFAULT_PARTITIONER(key, everything, available)


def _chosen_later(*_: object) -> None:
    return None


# --- aiokafka's ``BatchBuilder``, on the builder of ``create_batch`` ------------------------------


class AppendedRecord(NamedTuple):
    """A record of a batch: its index, its size in bytes, its time in milliseconds since the
    epoch. ``crc`` is always None."""

    offset: int
    size: int
    timestamp: int
    crc: None = None


class BatchBuilder:
    """The records of one batch, for :meth:`AIOKafkaProducer.send_batch`.

    :meth:`AIOKafkaProducer.create_batch` makes it, with ``max_batch_size`` as its limit.
    """

    def __init__(
        self,
        records: RecordBatchBuilder,
        key_serializer: Callable[[Any], Any] | None,
        value_serializer: Callable[[Any], Any] | None,
        wall_clock: Callable[[], float],
    ) -> None:
        self._records = records
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._wall_clock = wall_clock

    def append(
        self, *, timestamp: float | None, key: Any, value: Any, headers: HeadersLike = None
    ) -> AppendedRecord | None:
        """Add a record. Returns None if the batch is closed, or if the record does not fit: then
        the batch is closed. The first record always fits.

        ``timestamp`` is in milliseconds since the epoch, None is the present time.

        Raises:
            TypeError: key, value, headers or timestamp have a wrong type.
            ValueError: the timestamp is negative, infinite or NaN.
            MessageSizeTooLargeError: the record is larger than ``max_request_size``.
        """
        records = self._records
        if records.closed:
            return None
        if timestamp is None:
            timestamp = int(self._wall_clock() * 1000)
        elif timestamp.__class__ is not int:
            timestamp = timestamp_as_int(timestamp)
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        before = records.size
        try:
            with Translation():
                fits = records.append(value, key, timestamp_ms=timestamp, headers=headers)
        except ProducerStateError:
            return None  # a serializer has closed the batch
        if not fits:
            records.close()
            return None
        return AppendedRecord(records.record_count - 1, records.size - before, timestamp)

    def close(self) -> None:
        """Take no more records. ``send_batch`` does it, too."""
        self._records.close()

    def closed(self) -> bool:
        """Whether the batch takes no more records."""
        return self._records.closed

    def size(self) -> int:
        """The size of the batch in bytes before compression."""
        return self._records.size

    def record_count(self) -> int:
        """How many records the batch has."""
        return self._records.record_count
