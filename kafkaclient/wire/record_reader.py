"""Reads record batches (format 2, KIP-98) one record at a time.

The bytes may come from a peer: whatever they are, the only exception is
:class:`~kafkaclient.errors.ProtocolError`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.compression import crc32c, decompress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.types import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
BATCH_OVERHEAD = HEADER.size
"""Bytes of a batch's header: 61."""
LENGTH_OVERHEAD = 12
"""Bytes of the base offset and the length, which the length does not include."""
CRC_START = 21
"""The checksum begins here, at the attributes."""
MAGIC = 2
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
"""The batch is the marker at the end of a transaction."""

_VARINT_MAX_BYTES = 10
MIN_RECORD_BYTES = 7
"""The size of a record without key, value and headers."""


class BatchHeader(NamedTuple):
    """The fields of a batch's header, in their order on the wire."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """The number of the compression codec; see :class:`~.compression.CompressionType`."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_OVERHEAD


class Record(NamedTuple):
    """One record of a batch; ``timestamp`` in milliseconds since the epoch."""

    offset_delta: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def batch_header(batch: Buffer) -> BatchHeader:
    """The header of the batch at the beginning of ``batch``.

    Raises ProtocolError if it is not a batch of format 2, or is incomplete.
    """
    if len(batch) < BATCH_OVERHEAD:
        raise ProtocolError(f"a batch needs {BATCH_OVERHEAD} bytes of header, got {len(batch)}")
    header = BatchHeader._make(HEADER.unpack_from(batch))
    if header.magic != MAGIC:
        raise ProtocolError(f"batch of format {header.magic}; only format {MAGIC} is supported")
    if not BATCH_OVERHEAD <= header.size <= len(batch):
        raise ProtocolError(f"batch says it has {header.size} bytes, but {len(batch)} are there")
    return header


def verify_crc(batch: Buffer) -> bool:
    """Whether the batch's checksum (CRC-32C) matches; raises as :func:`batch_header`."""
    return checksum_matches(batch_header(batch), batch)


def checksum_matches(header: BatchHeader, batch: Buffer) -> bool:
    """Whether the batch's checksum matches, for a header that was read before."""
    return crc32c(memoryview(batch)[CRC_START : header.size]) == header.crc


def iter_records(batch: Buffer) -> Iterator[Record]:
    """The records of one batch, decompressed; raises ProtocolError at a malformed record."""
    header = batch_header(batch)
    body = memoryview(batch)[BATCH_OVERHEAD : header.size]
    if not header.record_count >= 0:
        raise ProtocolError(f"batch of {header.record_count} records")
    yield from read_records(
        decompress(header.codec, body), header.record_count, header.base_timestamp
    )


def read_records(data: bytes, count: int, base_timestamp: int) -> Iterator[Record]:
    """``count`` decompressed records; raises ProtocolError at a malformed record."""
    if count * MIN_RECORD_BYTES > len(data):
        raise ProtocolError(f"batch of {count} records in {len(data)} bytes")
    position = 0
    for _ in range(count):
        size, position = _varint(data, position)
        end = position + size
        if not position < end <= len(data):
            raise ProtocolError(f"record of {size} bytes where {len(data) - position} are left")
        yield _record(data, position + 1, end, base_timestamp)
        position = end
    if position != len(data):
        raise ProtocolError(f"{len(data) - position} bytes after the batch's last record")


def _record(data: bytes, position: int, end: int, base_timestamp: int) -> Record:
    timestamp_delta, position = _varint(data, position)
    offset_delta, position = _varint(data, position)
    key, position = _field(data, position, end)
    value, position = _field(data, position, end)
    header_count, position = _varint(data, position)
    if not 0 <= header_count <= end - position:
        raise ProtocolError(f"record with {header_count} headers in {end - position} bytes")
    headers = []
    for _ in range(header_count):
        name, position = _field(data, position, end)
        content, position = _field(data, position, end)
        headers.append((_text(name), content))
    if position != end:
        raise ProtocolError(f"record's fields end at byte {position}, the record at byte {end}")
    return Record(offset_delta, base_timestamp + timestamp_delta, key, value, tuple(headers))


def _field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise ProtocolError(f"field of {size} bytes where {end - position} are left")
    return data[position : position + size], position + size


def _text(name: bytes | None) -> str:
    if name is None:
        raise ProtocolError("record header without a key")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"record header's key is not UTF-8: {error}") from error


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position after it."""
    zigzag = 0
    for index, byte in enumerate(data[position : position + _VARINT_MAX_BYTES]):
        zigzag |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if zigzag >> 64:
                break
            return (zigzag >> 1) ^ -(zigzag & 1), position + index + 1
    raise ProtocolError(f"varint without an end at byte {position} of {len(data)}")
