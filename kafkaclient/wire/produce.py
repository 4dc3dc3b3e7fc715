"""Produce, the hot path, versions 3 to 13, encoded and decoded by hand.

Version 9 is the first flexible one (KIP-482); 8 added the refused records (KIP-467), 10 the hints
about new leaders (KIP-951). Version 13 names topics by id (KIP-516).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.errors import UnsupportedVersionError
from kafkaclient.wire.api import ApiKey, BrokerInfo
from kafkaclient.wire.reader import Reader
from kafkaclient.wire.results import PartitionResult, ProduceResult, RecordError
from kafkaclient.wire.writer import INT32, NO_TAGS, compact_string, string, uvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
"""From here on a Produce makes its partitions part of the transaction by itself (KIP-890)."""
FIRST_WITH_TOPIC_IDS = 13
"""Before that version topics go by name."""

_ID_SIZE = 16

# What a named tuple's own constructor does, without the detour over a Python function.
_new = tuple.__new__

_REQUEST_HEADER = struct.Struct(">hhi")
_ACKS_TIMEOUT = struct.Struct(">hi")
# Partition, error code, base offset and log append time of an answer.
_PARTITION = struct.Struct(">ihqq")

# The least bytes an element takes, which bounds the counts a hostile peer can claim.
_MIN_TOPIC = 2
_MIN_PARTITION = 22
_MIN_RECORD_ERROR = 5
_MIN_ENDPOINT = 10


def encode_request(
    version: int,
    correlation_id: int,
    client_id: str,
    acks: int,
    timeout_ms: int,
    topics: Sequence[tuple[str | bytes, Sequence[tuple[int, Buffer]]]],
    transactional_id: str | None = None,
) -> list[Buffer]:
    """A Produce request as the pieces to write one after the other.

    ``topics``: per topic, by name or from version 13 on by the 16 bytes of its id, its (partition,
    record batch) pairs. The batches are passed through untouched, so that no byte of them is
    copied. Raises UnsupportedVersionError for a version outside 3 to 13, ValueError for a string
    of more than 32767 bytes before version 9 and for a topic named in the other way.
    """
    _check_version(version)
    flexible = version >= _FIRST_FLEXIBLE
    text, count = (compact_string, uvarint) if flexible else (string, INT32.pack)
    tags = NO_TAGS if flexible else b""
    # count() of a compact array or byte string is one more than its length.
    extra = 1 if flexible else 0

    pieces: list[Buffer] = []
    small = bytearray(4)  # room for the frame's size
    small += _REQUEST_HEADER.pack(ApiKey.PRODUCE, version, correlation_id)
    small += string(client_id)  # never compact: see the schema of RequestHeader
    small += tags
    small += text(transactional_id)
    small += _ACKS_TIMEOUT.pack(acks, timeout_ms)
    small += count(len(topics) + extra)
    size = 0
    first = small
    for topic, partitions in topics:
        small += _named(topic, version, text)
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


def _named(topic: str | bytes, version: int, text: Callable[[str], bytes]) -> bytes:
    by_id = version >= FIRST_WITH_TOPIC_IDS
    if isinstance(topic, bytes) is not by_id or (by_id and len(topic) != _ID_SIZE):
        raise ValueError(f"Produce version {version} cannot name a topic by {topic!r}")
    return topic if isinstance(topic, bytes) else text(topic)


def decode_response(
    version: int, payload: Buffer, names: Mapping[bytes, str] | None = None
) -> ProduceResult:
    """Read the answer, from the bytes that follow the frame's size and correlation id.

    ``names``: for version 13, which topic has which id; one that is not there goes by the id in
    hexadecimal. Raises :class:`~kafkaclient.errors.ProtocolError` when the bytes are not such an
    answer, and UnsupportedVersionError for a version outside 3 to 13.
    """
    _check_version(version)
    reader = Reader(payload, flexible=version >= _FIRST_FLEXIBLE)
    reader.skip_tagged_fields()  # of the response header
    partitions: list[PartitionResult] = []
    for _ in reader.array(_MIN_TOPIC):
        if version >= FIRST_WITH_TOPIC_IDS:
            start = reader.advance(_ID_SIZE)
            topic_id = bytes(reader.data[start : start + _ID_SIZE])
            topic = (names or {}).get(topic_id) or topic_id.hex()
        else:
            topic = reader.string()
        partitions += [_partition(reader, version, topic) for _ in reader.array(_MIN_PARTITION)]
        reader.skip_tagged_fields()
    throttle_ms = reader.int32()
    tags = reader.tagged_fields()
    endpoints = _endpoints(tags[0]) if version >= _FIRST_WITH_LEADER_HINTS and 0 in tags else ()
    return _new(ProduceResult, (partitions, throttle_ms, endpoints))


def _check_version(version: int) -> None:
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise UnsupportedVersionError(
            f"Produce version {version}: this client speaks {MIN_VERSION} to {MAX_VERSION}"
        )


def _partition(reader: Reader, version: int, topic: str) -> PartitionResult:
    partition, error_code, base_offset, log_append_time_ms = _PARTITION.unpack_from(
        reader.data, reader.advance(_PARTITION.size)
    )
    log_start_offset = reader.int64() if version >= _FIRST_WITH_LOG_START_OFFSET else -1
    record_errors: tuple[RecordError, ...] = ()
    error_message = None
    if version >= _FIRST_WITH_RECORD_ERRORS:
        record_errors = tuple([_record_error(reader) for _ in reader.array(_MIN_RECORD_ERROR)])
        error_message = reader.nullable_string()
    tags = reader.tagged_fields()
    leader_id = leader_epoch = -1
    if version >= _FIRST_WITH_LEADER_HINTS and 0 in tags:
        hint = Reader(tags[0], flexible=True)
        leader_id, leader_epoch = hint.int32(), hint.int32()
    fields = (
        topic,
        partition,
        error_code,
        base_offset,
        log_append_time_ms,
        log_start_offset,
        record_errors,
        error_message,
        leader_id,
        leader_epoch,
    )
    return _new(PartitionResult, fields)


def _record_error(reader: Reader) -> RecordError:
    error = RecordError(reader.int32(), reader.nullable_string())
    reader.skip_tagged_fields()
    return error


def _endpoints(tag: memoryview) -> tuple[BrokerInfo, ...]:
    reader = Reader(tag, flexible=True)
    return tuple([BrokerInfo.read(reader) for _ in reader.array(_MIN_ENDPOINT)])


use_compiled(globals())
