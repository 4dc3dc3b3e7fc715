"""Encodes records into the buffer of a batch: what the producer does once per record.

``_record_buffer.pyx`` has the compiled form: the same names, bytes and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.errors import InvalidRecordError

if TYPE_CHECKING:
    from kafkaclient.types import Buffer, Headers

__all__ = ["RecordBuffer", "fields_size", "record_size"]

_BATCH_OVERHEAD = 61
_MAX_CAPACITY = 2**31 - 1  # the batch's length and a record's length are int32 on the wire
_MAX_TIMESTAMP = 2**63 - 1
_NULL = b"\x01"  # -1 as a zigzag varint


class RecordBuffer:
    """A growing run of encoded records, behind room for the header of their batch.

    ``capacity`` (bytes, header included) bounds the size; memory is taken as it is needed.
    Raises ValueError when the capacity is not within 0 and 2**31-1.
    """

    __slots__ = (
        "_data",
        "_frozen",
        "base_timestamp",
        "capacity",
        "count",
        "max_timestamp",
        "size",
    )

    def __init__(self, capacity: int) -> None:
        self.capacity = _checked_capacity(capacity)
        """How many bytes the batch may take before compression, its header included."""
        self.size = _BATCH_OVERHEAD
        """Bytes used before compression: 61 of header and the encoded records."""
        self.count = 0
        """How many records were appended."""
        self.base_timestamp = -1
        """The first record's timestamp in milliseconds; -1 while there is none."""
        self.max_timestamp = -1
        """The latest of the records' timestamps in milliseconds; -1 while there is none."""
        self._data = bytearray(_BATCH_OVERHEAD)
        self._frozen = False

    def reserve(self, capacity: int) -> None:
        """Raise the capacity to ``capacity`` bytes; a smaller one changes nothing."""
        self.capacity = max(self.capacity, _checked_capacity(capacity))

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
    ) -> int:
        """Encode one record; returns the bytes it took, or 0 when it does not fit.

        Raises InvalidRecordError for a timestamp that is not within 0 and 2**63-1, TypeError for
        arguments of other types, RuntimeError once the buffer is frozen.
        """
        if not isinstance(timestamp_ms, int):
            raise TypeError(f"timestamp must be int, not {type(timestamp_ms).__name__}")
        if not 0 <= timestamp_ms <= _MAX_TIMESTAMP:
            raise InvalidRecordError(
                f"timestamp must be milliseconds between 0 and 2**63-1, not {timestamp_ms}"
            )
        key, value = _as_bytes(key, "key"), _as_bytes(value, "value")
        pairs = _header_pairs(headers)
        if self._frozen:
            raise RuntimeError("the batch is sealed: no record can be added")
        return self.put(timestamp_ms, key, value, pairs)

    def put(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        pairs: list[tuple[bytes, bytes | None]] | None,
    ) -> int:
        """:meth:`append` with arguments that are known to be good."""
        base = self.base_timestamp if self.count else timestamp
        body = bytearray(1)  # attributes: none are defined
        _put_varint(body, timestamp - base)
        _put_varint(body, self.count)
        _put_bytes(body, key)
        _put_bytes(body, value)
        _put_headers(body, pairs or [])
        size = _varint_size(len(body)) + len(body)
        if self.size + size > self.capacity:
            return 0
        _put_varint(self._data, len(body))
        self._data += body
        self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.count += 1
        self.size += size
        return size

    def freeze(self) -> bytearray:
        """Hand over the bytes, of which the first 61 are left for the header; to be called once."""
        self._frozen = True
        data, self._data = self._data, bytearray()
        return data


def record_size(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
) -> int:
    """The exact encoded size in bytes of a record at this place of its batch."""
    body = (
        1
        + _varint_size(timestamp_delta)
        + _varint_size(offset_delta)
        + fields_size(key, value, headers)
    )
    return _varint_size(body) + body


def fields_size(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """The encoded size in bytes of a record's key, value and headers, lengths included."""
    size = _field_size(_as_bytes(key, "key")) + _field_size(_as_bytes(value, "value"))
    pairs = _header_pairs(headers)
    size += _varint_size(len(pairs))
    for name, content in pairs:
        size += _field_size(name) + _field_size(content)
    return size


def _checked_capacity(capacity: int) -> int:
    if not 0 <= capacity <= _MAX_CAPACITY:
        raise ValueError(f"capacity must be between 0 and 2**31-1 bytes, not {capacity}")
    return capacity


def _as_bytes(data: Buffer | None, what: str) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise TypeError(
        f"{what} must be bytes, bytearray, memoryview or None, not {type(data).__name__}"
    )


def _header_pairs(headers: Headers) -> list[tuple[bytes, bytes | None]]:
    pairs = []
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"header key must be str, not {type(name).__name__}")
        pairs.append((name.encode(), _as_bytes(content, "header value")))
    return pairs


def _put_headers(out: bytearray, pairs: list[tuple[bytes, bytes | None]]) -> None:
    _put_varint(out, len(pairs))
    for name, content in pairs:
        _put_bytes(out, name)
        _put_bytes(out, content)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out += _NULL
    else:
        _put_varint(out, len(data))
        out += data


def _put_varint(out: bytearray, value: int) -> None:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag >= 0x80:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def _varint_size(value: int) -> int:
    zigzag = (value << 1) ^ (value >> 63)
    return max(1, (zigzag.bit_length() + 6) // 7)


def _field_size(data: bytes | None) -> int:
    return 1 if data is None else _varint_size(len(data)) + len(data)


use_compiled(globals())
