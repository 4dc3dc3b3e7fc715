"""Encodes records into the buffer of a batch: the work that the producer does once per record.

``_record_buffer.pyx`` has the compiled form: the same names, bytes and errors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.errors import InvalidRecordError

if TYPE_CHECKING:
    from kafkaclient.types import Buffer, Headers

__all__ = ["RecordBuffer", "fields_size", "headers_size", "record_size"]

_BATCH_OVERHEAD = 61
_MAX_CAPACITY = 2**31 - 1  # the batch's length and a record's length are int32 on the wire
_MAX_TIMESTAMP = 2**63 - 1


class RecordBuffer:
    """Encoded records, behind 61 bytes for the header of their batch.

    ``capacity`` (bytes, header included) limits the size; memory is allocated as it is needed.
    Raises ValueError for a capacity that is not within 0 and 2**31-1.
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
        self.capacity: int = 0
        """The most bytes of the batch before compression, its header included."""
        self.reserve(capacity)
        self.size: int = _BATCH_OVERHEAD
        """Bytes used before compression: the header and the encoded records."""
        self.count: int = 0
        """The number of records."""
        self.base_timestamp: int = -1
        """The first record's timestamp in milliseconds; -1 without records."""
        self.max_timestamp: int = -1
        """The latest timestamp of a record in milliseconds; -1 without records."""
        self._data = bytearray(_BATCH_OVERHEAD)
        self._frozen = False

    def reserve(self, capacity: int) -> None:
        """Raise the capacity to ``capacity`` bytes; a smaller one changes nothing."""
        if not 0 <= capacity <= _MAX_CAPACITY:
            raise ValueError(f"capacity must be between 0 and 2**31-1 bytes, not {capacity}")
        self.capacity = max(self.capacity, capacity)

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
    ) -> int:
        """Encode one record; returns its size in bytes, or 0 if it does not fit.

        Raises InvalidRecordError for a timestamp that is not within 0 and 2**63-1, TypeError for
        arguments of other types, RuntimeError once the buffer is frozen.
        """
        if not isinstance(timestamp_ms, int):
            raise TypeError(f"timestamp must be int, not {type(timestamp_ms).__name__}")
        if not 0 <= timestamp_ms <= _MAX_TIMESTAMP:
            raise InvalidRecordError(
                f"timestamp must be milliseconds between 0 and 2**63-1, not {timestamp_ms}"
            )
        return self._add(timestamp_ms, _fields(key, value, headers))

    def put(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        _headers_size: int,
    ) -> int:
        """:meth:`append` for a record with a valid timestamp and plain headers, whose encoded size
        is known (:func:`headers_size`)."""
        return self._add(timestamp, _fields(key, value, headers))

    def _add(self, timestamp: int, fields: bytes) -> int:
        base = self.base_timestamp if self.count else timestamp
        record = _encoded(self.count, timestamp - base, fields)
        if self._frozen:
            raise RuntimeError("the batch is sealed: no record can be added")
        size = len(record)
        if self.size + size > self.capacity:
            return 0
        self._data += record
        self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.count += 1
        self.size += size
        return size

    def freeze(self) -> bytearray:
        """Hand over the bytes; the caller writes the header into the first 61. Call it once."""
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
    """The exact encoded size in bytes of a record with these deltas."""
    return len(_encoded(offset_delta, timestamp_delta, _fields(key, value, headers)))


def fields_size(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """The encoded size in bytes of a record's key, value and headers, lengths included."""
    return len(_fields(key, value, headers))


def headers_size(headers: object) -> int:
    """The encoded size of a record's headers in bytes, their count included; -1 if they are not
    plain: a list or tuple of tuples with a str that is valid Unicode, and bytes or None."""
    if headers.__class__ is not tuple and headers.__class__ is not list:
        return -1
    for pair in cast("Headers", headers):
        if pair.__class__ is not tuple or len(pair) != 2:
            return -1
        name, content = pair
        if name.__class__ is not str or not (content is None or isinstance(content, bytes)):
            return -1
    try:
        return len(_headers(cast("Headers", headers)))
    except UnicodeEncodeError:
        return -1


def _encoded(offset_delta: int, timestamp_delta: int, fields: bytes) -> bytes:
    # The first byte has the attributes: none are defined.
    body = b"\x00" + _varint(timestamp_delta) + _varint(offset_delta) + fields
    return _varint(len(body)) + body


def _fields(key: Buffer | None, value: Buffer | None, headers: Headers) -> bytes:
    return _blob(key, "key") + _blob(value, "value") + _headers(headers)


def _headers(headers: Headers) -> bytes:
    encoded: list[bytes] = []
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"header key must be str, not {type(name).__name__}")
        encoded += [_blob(name.encode(), "header key"), _blob(content, "header value")]
    return b"".join((_varint(len(encoded) // 2), *encoded))


def _blob(data: Buffer | None, what: str) -> bytes:
    """Bytes behind their length; -1 is the length of None."""
    if data is None:
        return _varint(-1)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"{what} must be bytes, bytearray, memoryview or None, not {type(data).__name__}"
        )
    content = bytes(data)
    return _varint(len(content)) + content


@lru_cache(maxsize=1024)
def _varint(value: int) -> bytes:
    """A zigzag varint."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag >= 0x80:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


use_compiled(globals())
