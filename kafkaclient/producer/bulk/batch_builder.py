"""The records of one ``send_batch``, and the columns that ``send_many`` is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Never

from kafkaclient.errors import (
    ConfigError,
    InvalidRecordError,
    ProducerStateError,
    RecordTooLargeError,
    SerializationError,
)
from kafkaclient.producer.batches.record import (
    Record,
    check_place,
    header_pairs,
    too_large,
)
from kafkaclient.producer.batches.serializers import AwaitedFields
from kafkaclient.wire.records import (
    BATCH_OVERHEAD,
    BatchBuilder,
    record_size,
    record_size_upper_bound,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.serializers import Serializers
    from kafkaclient.types import HeadersLike


# --- Checks the arguments of ``send_many`` that have an item for each record ----------------------

_ONE_ITEM = (str, bytes, bytearray, memoryview, Mapping)


def check_column(name: str, column: object) -> None:
    """Raise InvalidRecordError unless ``column`` can have an item for each record. Text, bytes and
    a mapping are one value, although they can be iterated over."""
    if isinstance(column, _ONE_ITEM) or not hasattr(column, "__iter__"):
        raise InvalidRecordError(
            f"{name} must be a sequence with an item for each record, not a "
            f"{type(column).__name__}; nothing was sent"
        )


# --- The records of one ``send_batch``, encoded while the caller appends them ---------------------

_FIRST_CAPACITY = 1024  # bytes


class RecordBatchBuilder:
    """Collects the records of one record batch, for :meth:`Producer.send_batch`.

    :meth:`Producer.create_batch` makes it. The records are in memory from :meth:`append` on;
    ``buffer.memory`` counts them from ``send_batch`` on. A batch is sent once only. If
    ``send_batch`` raises an error, the batch was not sent, and can be passed again. A batch is for
    one thread at a time.
    """

    __slots__ = ("_closed", "_config", "_limit", "_records", "_sent", "_serializers", "_wall_clock")

    def __init__(
        self,
        config: ProducerConfig,
        wall_clock: Callable[[], float],
        batch_size: int | None,
        serializers: Serializers | None,
    ) -> None:
        limit = config.batch_size if batch_size is None else batch_size
        if not isinstance(limit, int) or limit < 0:
            raise ConfigError(f"batch_size must be an int that is not negative, not {limit!r}")
        self._config = config
        self._wall_clock = wall_clock
        self._limit = min(limit, config.max_request_size, config.buffer_memory)
        self._serializers = serializers
        self._records = BatchBuilder(min(_FIRST_CAPACITY, self._limit))
        self._closed = self._sent = False

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("a RecordBatchBuilder cannot be copied or pickled: a batch is sent once")

    def __repr__(self) -> str:
        state = "sent" if self._sent else "closed" if self._closed else "open"
        return f"<RecordBatchBuilder {self.record_count} records, {self.size} B, {state}>"

    def append(
        self,
        value: Any = None,
        key: Any = None,
        *,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> bool:
        """Add a record, with the parameters of :meth:`Producer.send`; a record without
        ``timestamp_ms`` has the present time. The producer's serializers are applied.

        Returns False, and adds nothing, if the batch would be larger than its limit. The first
        record may be larger than the limit.

        Raises:
            RecordTooLargeError: no request can hold the record (``max.request.size``).
            InvalidRecordError: a key, value, header or timestamp is not acceptable.
            SerializationError: a serializer raised an exception, its result is not bytes, or it is
                async.
            ProducerStateError: the batch is closed.
        """
        if self._closed:
            raise ProducerStateError(f"a record was not appended: {self._closed_because()}")
        if self._serializers is not None:
            value, key, headers = _in_bytes(self._serializers, value, key, headers)
        if timestamp_ms is None:
            timestamp_ms = int(self._wall_clock() * 1000)
        try:
            if headers.__class__ is not tuple and headers.__class__ is not list:
                headers = header_pairs(headers) if headers else ()
            if self._closed:  # by a serializer, or by the headers' own code
                raise ProducerStateError(f"a record was not appended: {self._closed_because()}")
            while not self._records.append(timestamp_ms, key, value, headers):
                if not self._make_room(key, value, headers):
                    return False
        except InvalidRecordError:
            raise
        except (TypeError, ValueError) as error:
            raise InvalidRecordError(f"a record of a batch: {error}") from error
        return True

    def _make_room(self, key: Any, value: Any, headers: Any) -> bool:
        """Enlarge the buffer for a record that it has no room for. False: the batch is full."""
        records = self._records
        upper_bound = BATCH_OVERHEAD + record_size_upper_bound(key, value, headers)
        if upper_bound > min(self._config.max_request_size, self._config.buffer_memory):
            raise too_large(self._config, "", upper_bound)
        if not records.count:
            records.reserve(BATCH_OVERHEAD + record_size(0, 0, key, value, headers))
        elif records.capacity < self._limit:
            records.reserve(min(2 * records.capacity, self._limit))
        else:
            return False
        return True

    @property
    def record_count(self) -> int:
        """How many records the batch has."""
        return self._records.count

    @property
    def size(self) -> int:
        """The size of the batch in bytes before compression, with its header of 61 bytes."""
        return self._records.size

    @property
    def closed(self) -> bool:
        """Whether the batch takes no more records: it was closed, or given to ``send_batch``."""
        return self._closed

    def close(self) -> None:
        """Take no more records. ``send_batch`` does it, too."""
        self._closed = True

    def take(self, config: ProducerConfig, topic: object, partition: int | None) -> Record:
        """The records for a producer with these options, which sends them; not for applications.
        :meth:`give_back` follows if they were not sent."""
        partition = check_place(topic, partition)
        records, largest = self._records, min(config.max_request_size, config.buffer_memory)
        if self._sent:
            raise ProducerStateError(f"nothing was sent: {self._closed_because()}")
        if not records.count:
            raise InvalidRecordError("nothing was sent: the batch has no records")
        if records.size > largest:  # it was made by a producer with other options
            raise RecordTooLargeError(
                f"nothing was sent: the batch has {records.size} bytes, more than the {largest} "
                "that this producer's max.request.size and buffer.memory allow"
            )
        self._closed = self._sent = True
        return Record(
            records.base_timestamp, None, None, (), partition, records.size, batch=records
        )

    def give_back(self) -> None:
        """The records were not sent; not for applications."""
        self._sent = False

    def _closed_because(self) -> str:
        return "the batch was sent already" if self._sent else "the batch is closed"


def _in_bytes(
    serializers: Serializers, value: Any, key: Any, headers: HeadersLike
) -> tuple[Any, Any, Any]:
    """(value, key, headers) after the serializers."""
    fields = serializers.apply("", value, key, headers)
    if isinstance(fields[0], AwaitedFields):
        raise SerializationError(
            f"the {fields[0].field} of a record of a batch: its serializer is async, and "
            "records of create_batch do not wait; the record was not appended"
        )
    return fields
