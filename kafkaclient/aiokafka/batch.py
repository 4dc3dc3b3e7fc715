"""aiokafka's ``BatchBuilder`` and its partitioners, on this package's producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from aiokafka.partitioner import DefaultPartitioner

from kafkaclient.aiokafka.errors import Translation
from kafkaclient.aiokafka.options import timestamp_as_int
from kafkaclient.errors import ProducerStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import ClusterView, LoadView, Producer, RecordBatchBuilder
    from kafkaclient.types import HeadersLike

__all__ = [
    "DEFAULT_PARTITIONER",
    "AppendedRecord",
    "BatchBuilder",
    "CallablePartitioner",
    "option_for",
    "prediction",
]


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
