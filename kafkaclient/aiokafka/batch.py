"""aiokafka's ``BatchBuilder``, on the builder of :meth:`kafkaclient.Producer.create_batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.aiokafka.arguments import timestamp_as_int
from kafkaclient.aiokafka.errors import Translation
from kafkaclient.errors import ProducerStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import RecordBatchBuilder
    from kafkaclient.types import HeadersLike

__all__ = ["AppendedRecord", "BatchBuilder"]


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
