"""Checks of a record that need no metadata: topic name, types, sizes, serializers."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.errors import InvalidRecordError, RecordTooLargeError, SerializationError
from kafkaclient.producer.batches.serializers import AwaitedFields, record_text
from kafkaclient.producer.user_code import text_of_user_error
from kafkaclient.topic_names import check_topic_name
from kafkaclient.wire.records import BATCH_OVERHEAD, record_size_upper_bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.serializers import Serializers
    from kafkaclient.types import Headers, HeadersLike
    from kafkaclient.wire.records import BatchBuilder

_UNSERIALIZED_SIZE = 1024  # bytes charged at least for a record that is not serialized yet


class Record(NamedTuple):
    """A checked record. ``timestamp`` is in milliseconds since the epoch; ``upper_bound`` is the
    largest size in bytes that a batch with this record alone can have.

    With ``batch`` it stands for the encoded records of a ``send_batch``: ``timestamp`` is that of
    the first one, and ``upper_bound`` the size of the batch before compression.
    """

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    upper_bound: int
    batch: BatchBuilder | None = None


class RawRecord(NamedTuple):
    """A record as the caller of ``send`` gives it; ``in_bytes``: the serializers have been applied.
    ``topic`` is empty for a record of ``create_batch``, which has no topic yet."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: HeadersLike = ()
    in_bytes: bool = False


class PendingRecord:
    """A record whose key or value is not serialized yet. Everything else is checked.

    ``upper_bound``: bytes charged to the buffer pool until the record's size is known.
    """

    __slots__ = (
        "_awaited",
        "_config",
        "_raw",
        "_wall_clock",
        "partition",
        "timestamp",
        "upper_bound",
    )

    def __init__(
        self, config: ProducerConfig, wall_clock: Callable[[], float], raw: RawRecord
    ) -> None:
        self._awaited: AwaitedFields = raw.value
        self._raw = raw._replace(value=None, key=None, headers=self._awaited.headers)
        known = checked_record(config, wall_clock, self._raw)
        self.timestamp: int = known.timestamp
        self.partition: int | None = known.partition
        self.upper_bound: int = min(
            max(known.upper_bound, _UNSERIALIZED_SIZE), config.buffer_memory
        )
        self._config, self._wall_clock = config, wall_clock

    async def finish(self) -> Record:
        """The record in bytes; call it once. Raises :class:`InvalidRecordError` and its subclasses,
        as :func:`checked_record` does."""
        value, key, headers = await self._awaited.finish()
        raw = RawRecord(self._raw.topic, value, key, self.partition, self.timestamp, headers)
        return record_of_bytes(self._config, self._wall_clock, raw)

    def close(self) -> None:
        """Close the awaitable: :meth:`finish` will not be called."""
        self._awaited.close()

    def not_finished(self, why: str) -> SerializationError:
        """The error for a serializer that has not finished."""
        return self._awaited.not_finished(why)


def serialized_record(
    config: ProducerConfig,
    wall_clock: Callable[[], float],
    raw: RawRecord,
    serializers: Serializers | None,
) -> Record | PendingRecord:
    """:func:`checked_record` after the serializers (None: there are none). Returns a
    :class:`PendingRecord` if a serializer returned an awaitable."""
    partition = check_place(raw.topic, raw.partition)  # before user code runs
    if partition is not raw.partition:
        raw = raw._replace(partition=partition)
    if serializers is not None and not raw.in_bytes:
        value, key, headers = serializers.apply(raw.topic, raw.value, raw.key, raw.headers)
        raw = raw._replace(value=value, key=key, headers=headers)
    if isinstance(raw.value, AwaitedFields):
        return PendingRecord(config, wall_clock, raw)
    return record_of_bytes(config, wall_clock, raw)


def checked_record(
    config: ProducerConfig, wall_clock: Callable[[], float], raw: RawRecord
) -> Record:
    """The record in bytes; raises :class:`InvalidRecordError` and its subclasses.

    Buffers that may change are copied: the record may be encoded much later.
    """
    partition = check_place(raw.topic, raw.partition)
    if partition is not raw.partition:
        raw = raw._replace(partition=partition)
    return record_of_bytes(config, wall_clock, raw)


def check_place(topic: object, partition: object) -> int | None:
    """The partition as a plain int. Raises :class:`InvalidRecordError` if ``topic`` cannot be a
    topic's name, or ``partition`` a partition."""
    check_topic_name(topic)
    return None if partition is None else _checked_number("partition", partition, bits=31)


def record_of_bytes(
    config: ProducerConfig, wall_clock: Callable[[], float], raw: RawRecord
) -> Record:
    """Check headers, sizes and timestamp of a record in bytes. The caller has checked topic and
    partition."""
    topic, value, key, partition, timestamp_ms, headers, _ = raw
    try:
        headers = header_pairs(headers) if headers else ()
        if value.__class__ is not bytes:
            value = _frozen(value)
        if key is not None:
            key = _frozen(key)
        upper_bound = BATCH_OVERHEAD + record_size_upper_bound(key, value, headers)
    except (TypeError, ValueError) as error:
        field, advice = str(error).partition(" must be bytes")[0], ""
        if field in ("key", "value"):
            advice = f"; give it in bytes, or the producer a {field}_serializer"
        raise InvalidRecordError(f"{record_text(topic)}: {error}{advice}") from error
    if upper_bound > config.max_request_size or upper_bound > config.buffer_memory:
        raise too_large(config, topic, upper_bound)
    if timestamp_ms is None:
        timestamp_ms = int(wall_clock() * 1000)
    if timestamp_ms.__class__ is not int or not 0 <= timestamp_ms < 2**63:
        timestamp_ms = _checked_number("timestamp_ms", timestamp_ms, bits=63)
    return Record(timestamp_ms, key, value, headers, partition, upper_bound)


def _frozen(item: Any) -> Any:
    return bytes(item) if isinstance(item, (bytearray, memoryview)) else item


def header_pairs(headers: Any) -> Headers:
    """The headers as a tuple: an iterator could be read only once."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple([(name, _frozen(item)) for name, item in pairs])
    except (TypeError, ValueError) as error:
        raise TypeError(f"headers must be (name, value) pairs or a mapping: {error}") from error


def too_large(config: ProducerConfig, topic: str, upper_bound: int) -> RecordTooLargeError:
    """The error for a record that takes up to ``upper_bound`` bytes in a batch of its own."""
    name, limit = min(
        (("max.request.size", config.max_request_size), ("buffer.memory", config.buffer_memory)),
        key=lambda option: option[1],
    )
    return RecordTooLargeError(
        f"{record_text(topic)} takes up to {upper_bound} bytes, more than {name}={limit}; "
        "it was not sent"
    )


def _checked_number(name: str, number: Any, *, bits: int) -> int:
    try:  # a plain int in place of a subclass, such as an enum, or of one of numpy's integers
        plain = int.__index__(number) if isinstance(number, int) else index(number)
        if 0 <= plain < 2**bits:
            return plain
        given = repr(number)
    except BaseException as error:  # noqa: BLE001
        given = f"a {type(number).__name__}: {text_of_user_error(error)}"
    raise InvalidRecordError(f"{name} must be an int from 0 to 2**{bits} - 1, not {given}")
