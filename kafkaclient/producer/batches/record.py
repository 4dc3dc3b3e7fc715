"""Checks of a record that need no metadata: topic name, types, sizes, serializers."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.errors import InvalidRecordError, RecordTooLargeError, SerializationError
from kafkaclient.topic_names import check_topic_name
from kafkaclient.wire.records import BATCH_OVERHEAD, record_size_upper_bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.types import Headers, HeadersLike
    from kafkaclient.wire.records import BatchBuilder


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
    """A record as the caller of ``send`` gives it; ``serialized``: as the serializers return it.
    ``topic`` is empty for a record of ``create_batch``, which has no topic yet."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: HeadersLike = ()
    serialized: bool = False


def checked_record(
    config: ProducerConfig, wall_clock: Callable[[], float], raw: RawRecord
) -> Record:
    """The record in bytes; raises :class:`InvalidRecordError` and its subclasses.

    Buffers that may change are copied: the record may be encoded much later.
    """
    partition = check_place(raw.topic, raw.partition)
    if partition is not raw.partition:
        raw = raw._replace(partition=partition)
    plain = config.key_serializer is None and config.value_serializer is None
    if not (plain or raw.serialized):
        value, key = serialize(config, raw.topic, raw.value, raw.key)
        raw = raw._replace(value=value, key=key)
    return record_of_bytes(config, wall_clock, raw)


def serialize(config: ProducerConfig, topic: str, value: Any, key: Any) -> tuple[Any, Any]:
    """(value, key) after the serializers, which do not get None.

    Raises :class:`SerializationError` if a serializer raises, or returns anything but a buffer.
    """
    if config.key_serializer is not None and key is not None:
        key = _serialize(config.key_serializer, key, f"the key of {_described(topic)}")
    if config.value_serializer is not None and value is not None:
        value = _serialize(config.value_serializer, value, f"the value of {_described(topic)}")
    return value, key


def check_place(topic: object, partition: object) -> int | None:
    """The partition as a plain int. Raises :class:`InvalidRecordError` if ``topic`` cannot be a
    topic's name, or ``partition`` a partition."""
    check_topic_name(topic)
    return None if partition is None else _checked_number("partition", partition)


def record_of_bytes(
    config: ProducerConfig, wall_clock: Callable[[], float], raw: RawRecord
) -> Record:
    """:func:`checked_record` without the serializers; topic and partition are checked already."""
    topic, value, key, partition, timestamp_ms, headers, _ = raw
    try:
        headers = header_pairs(headers) if headers else ()
        if value.__class__ is not bytes:
            value = _frozen(value)
        if key is not None:
            key = _frozen(key)
        upper_bound = BATCH_OVERHEAD + record_size_upper_bound(key, value, headers)
    except (TypeError, ValueError) as error:
        raise InvalidRecordError(f"{_described(topic)}: {error}") from error
    if upper_bound > config.max_request_size or upper_bound > config.buffer_memory:
        raise too_large(config, topic, upper_bound)
    if timestamp_ms is None:
        timestamp_ms = int(wall_clock() * 1000)
    if timestamp_ms.__class__ is not int or not 0 <= timestamp_ms < 2**63:
        timestamp_ms = _checked_number("timestamp_ms", timestamp_ms)
    return Record(timestamp_ms, key, value, headers, partition, upper_bound)


def _described(topic: str) -> str:
    return f"a record for topic {topic!r}" if topic else "a record of a batch"


def _frozen(item: Any) -> Any:
    return bytes(item) if isinstance(item, (bytearray, memoryview)) else item


def header_pairs(headers: Any) -> Headers:
    """The headers as a tuple: an iterator could be read only once."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple([(name, _frozen(item)) for name, item in pairs])


def too_large(config: ProducerConfig, topic: str, upper_bound: int) -> RecordTooLargeError:
    """The error for a record that takes up to ``upper_bound`` bytes in a batch of its own."""
    name, limit = min(
        (("max.request.size", config.max_request_size), ("buffer.memory", config.buffer_memory)),
        key=lambda option: option[1],
    )
    return RecordTooLargeError(
        f"{_described(topic)} takes up to {upper_bound} bytes, more than {name}={limit}; "
        "it was not sent"
    )


def _checked_number(name: str, number: object) -> int:
    if not isinstance(number, int) or not 0 <= number < 2**63:
        raise InvalidRecordError(f"{name} must be an int from 0 to 2**63 - 1, not {number!r}")
    return int.__index__(number)  # a plain int in place of a subclass, such as an enum


def _serialize(serializer: Callable[[Any], bytes | None], item: Any, what: str) -> bytes | None:
    try:
        serialized = serializer(item)
    except Exception as error:
        raise SerializationError(f"{what} could not be serialized: {error!r}") from error
    if not isinstance(serialized, (bytes, bytearray, memoryview, NoneType)):
        raise SerializationError(
            f"{what}: the serializer gave {type(serialized).__name__}, not bytes or None"
        )
    return serialized
