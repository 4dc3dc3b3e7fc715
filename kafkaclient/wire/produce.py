"""Produce, versions 3 to 13, encoded and decoded by hand because it is the hot path.

Version 8 added the rejected records (KIP-467), 9 is the first flexible version (KIP-482), 10 added
hints about new leaders (KIP-951), 13 names topics by id (KIP-516).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from kafkaclient.errors import UnsupportedVersionError
from kafkaclient.wire.api import (
    INT32,
    NO_TAGS,
    ApiKey,
    BrokerInfo,
    PartitionResult,
    ProduceResult,
    RecordError,
    compact_string,
    request,
    string,
    uvarint,
)
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.types import Buffer

__all__ = [
    "FIRST_OF_TRANSACTIONS_V2",
    "FIRST_WITH_TOPIC_IDS",
    "MAX_VERSION",
    "MIN_VERSION",
    "PartitionResult",
    "ProduceResult",
    "RecordError",
    "decode_response",
    "encode_request",
]

MIN_VERSION = 3
MAX_VERSION = 13

_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_RECORD_ERRORS = 8
_FIRST_FLEXIBLE = 9
_FIRST_WITH_LEADER_HINTS = 10
FIRST_OF_TRANSACTIONS_V2 = 12
"""From this version on Produce adds its partitions to the transaction (KIP-890)."""
FIRST_WITH_TOPIC_IDS = 13
"""Earlier versions name topics by name."""

_ID_SIZE = 16

# As a named tuple's own constructor, without a call of a Python function.
_new = tuple.__new__

_CORRELATION_ID_AT = 8  # behind the frame's size, the API key and the version
_ACKS_TIMEOUT = struct.Struct(">hi")
# A partition's number, error code, base offset, log append time, and log start offset.
_PARTITION = struct.Struct(">ihqqq")
_PARTITION_WITHOUT_LOG_START = struct.Struct(">ihqq")
# A flexible response from its only partition on: that the array has one partition, the partition's
# fields, what follows them, the throttle time, and that there are no tagged fields.
_LONE_PARTITION = struct.Struct(">BihqqqIiB")
_ONE = 2  # the length of a compact array of one element
_PLAIN = 0x01000000  # no record errors, no error message, no tagged fields of partition and topic

# The smallest size of an element in bytes, which limits the counts that a peer can claim.
_MIN_TOPIC = 2
_MIN_PARTITION = 22
_MIN_RECORD_ERROR = 5


def encode_request(
    version: int,
    correlation_id: int,
    client_id: str,
    acks: int,
    timeout_ms: int,
    topics: Sequence[tuple[str | bytes, Sequence[tuple[int, Buffer]]]],
    transactional_id: str | None = None,
) -> list[Buffer]:
    """A Produce request, as the pieces to write one after the other.

    ``topics``: for each topic, by name or from version 13 on by the 16 bytes of its id, the
    (partition, record batch) pairs. The batches are not copied. Raises UnsupportedVersionError for
    a version outside 3 to 13, and ValueError for a string of more than 32767 bytes before version 9
    or a topic that this version cannot name in this way.
    """
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise _unsupported(version)
    by_id = version >= FIRST_WITH_TOPIC_IDS
    flexible = version >= _FIRST_FLEXIBLE
    text, count = (compact_string, uvarint) if flexible else (string, INT32.pack)
    tags = NO_TAGS if flexible else b""
    # count() of a compact array or byte string is one more than its length.
    extra = 1 if flexible else 0

    pieces: list[Buffer] = []
    small = bytearray(_prefix(version, client_id, acks, timeout_ms, transactional_id))
    INT32.pack_into(small, _CORRELATION_ID_AT, correlation_id)
    small += count(len(topics) + extra)
    size = 0
    first = small
    for topic, partitions in topics:
        if isinstance(topic, bytes) is not by_id or (by_id and len(topic) != _ID_SIZE):
            raise ValueError(f"Produce version {version} cannot name a topic by {topic!r}")
        small += topic if isinstance(topic, bytes) else text(topic)
        small += count(len(partitions) + extra)
        for partition, batch in partitions:
            small += INT32.pack(partition)
            small += count(len(batch) + extra)
            pieces += (small, batch)
            size += len(small) + len(batch)
            small = bytearray(tags)
        small += tags
    small += tags
    if small:
        pieces.append(small)
        size += len(small)
    INT32.pack_into(first, 0, size - INT32.size)
    return pieces


@lru_cache
def _prefix(
    version: int, client_id: str, acks: int, timeout_ms: int, transactional_id: str | None
) -> bytes:
    """The part that all requests of a producer have in common, up to the topics."""
    flexible = version >= _FIRST_FLEXIBLE
    text = compact_string if flexible else string
    prefix = request(ApiKey.PRODUCE, version, 0, client_id, flexible=flexible)
    return bytes(prefix + text(transactional_id) + _ACKS_TIMEOUT.pack(acks, timeout_ms))


def decode_response(
    version: int, payload: Buffer, names: Mapping[bytes, str] | None = None
) -> ProduceResult:
    """The values of a response, from the bytes behind the frame's size and correlation id.

    ``names``: the topics by their ids, for version 13; the name of an unknown id is the id in
    hexadecimal. Raises :class:`~kafkaclient.errors.ProtocolError` if the bytes are not such a
    response, and UnsupportedVersionError for a version outside 3 to 13.
    """
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise _unsupported(version)
    reader = FieldReader(payload, flexible=version >= _FIRST_FLEXIBLE)
    reader.tagged_fields()  # of the response header
    partitions: list[PartitionResult] = []
    topics = reader.array(_MIN_TOPIC)
    for _ in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            topic_id = bytes(reader.take(_ID_SIZE))
            topic = (names or {}).get(topic_id) or topic_id.hex()
        else:
            topic = reader.string()
        left = reader.end - reader.position
        if reader.flexible and len(topics) == 1 and left == _LONE_PARTITION.size:
            lone = _LONE_PARTITION.unpack_from(reader.data, reader.position)
            if lone[0] == _ONE and lone[6] == _PLAIN and not lone[8]:
                partitions.append(_new(PartitionResult, (topic, *lone[1:6], (), None, -1, -1)))
                return _new(ProduceResult, (partitions, lone[7], ()))
        for _ in reader.array(_MIN_PARTITION):
            partitions.append(_partition(reader, version, topic))  # noqa: PERF401 - no extra call
        reader.tagged_fields()
    (throttle_ms,) = reader.unpack(INT32)
    tags = reader.tagged_fields()
    hints = tags.get(0) if version >= _FIRST_WITH_LEADER_HINTS else None
    endpoints = () if hints is None else BrokerInfo.read_tag(hints)
    return _new(ProduceResult, (partitions, throttle_ms, endpoints))


def _unsupported(version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"Produce version {version}: this client supports {MIN_VERSION} to {MAX_VERSION}"
    )


def _partition(reader: FieldReader, version: int, topic: str) -> PartitionResult:
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        fixed = reader.unpack(_PARTITION)
    else:
        fixed = (*reader.unpack(_PARTITION_WITHOUT_LOG_START), -1)
    record_errors: list[RecordError] = []
    error_message = None
    if version >= _FIRST_WITH_RECORD_ERRORS:
        for _ in reader.array(_MIN_RECORD_ERROR):
            error = RecordError(reader.int32(), reader.nullable_string())
            reader.tagged_fields()
            record_errors.append(error)
        error_message = reader.nullable_string()
    tags = reader.tagged_fields()
    leader_id = leader_epoch = -1
    if version >= _FIRST_WITH_LEADER_HINTS and 0 in tags:
        hint = FieldReader(tags[0], flexible=True)
        leader_id, leader_epoch = hint.int32(), hint.int32()
    rest = (tuple(record_errors), error_message, leader_id, leader_epoch)
    return _new(PartitionResult, (topic, *fixed, *rest))
