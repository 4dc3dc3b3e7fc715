"""Reads the Kafka protocol's primitive types from bytes that a peer sent.

Every length is checked against the remaining bytes before anything is read or allocated. A hostile
peer can neither cause a read past the end nor an allocation larger than what it sent.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.types import Buffer

__all__ = ["FieldReader"]

_INT8 = struct.Struct(">b").unpack_from
_INT16 = struct.Struct(">h").unpack_from
_INT32 = struct.Struct(">i").unpack_from
_INT64 = struct.Struct(">q").unpack_from

_UVARINT_MAX_BYTES = 5
_NO_FIELDS: Mapping[int, memoryview] = {}


class FieldReader:
    """A position in a buffer. ``flexible`` selects KIP-482's compact strings, arrays and tags.

    Every method raises :class:`~kafkaclient.errors.ProtocolError` if the buffer ends too early or
    its bytes are malformed.
    """

    __slots__ = ("data", "end", "flexible", "position")

    def __init__(self, data: Buffer, *, flexible: bool) -> None:
        self.data = memoryview(data)
        self.position = 0
        self.end = len(self.data)
        self.flexible = flexible

    @property
    def remaining(self) -> int:
        """Bytes that have not been read."""
        return self.end - self.position

    def advance(self, size: int) -> int:
        """Skip ``size`` bytes; returns the position before them."""
        start = self.position
        if size < 0 or size > self.end - start:
            raise _ends_early(size, start, self.end)
        self.position = start + size
        return start

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes, without a copy."""
        start = self.advance(size)
        return self.data[start : self.position]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next fields, of a fixed layout."""
        start = self.position
        size = layout.size
        if size > self.end - start:
            raise _ends_early(size, start, self.end)
        self.position = start + size
        return layout.unpack_from(self.data, start)

    def int8(self) -> int:
        value: int = _INT8(self.data, self.advance(1))[0]
        return value

    def int16(self) -> int:
        value: int = _INT16(self.data, self.advance(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32(self.data, self.advance(4))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64(self.data, self.advance(8))[0]
        return value

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        position, value = self.position, 0
        for index in range(_UVARINT_MAX_BYTES):
            if position == self.end:
                raise _ends_early(1, position, self.end)
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self.position = position
                return value
        raise ProtocolError(f"varint longer than 5 bytes before byte {position}")

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self.flexible else self.int16()
        if size == -1:
            return None
        start = self.advance(size)
        try:
            return str(self.data[start : self.position], "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"string at byte {start} is not UTF-8: {error}") from error

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ProtocolError(f"null before byte {self.position} where a string is required")
        return value

    def array(self, element_size: int) -> range:
        """The indices of an array whose elements have at least ``element_size`` bytes each.

        A null array counts as an empty array.
        """
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if count < -1 or count * element_size > self.end - self.position:
            raise ProtocolError(
                f"array of {count} elements before byte {self.position}, "
                f"but only {self.end - self.position} bytes are left"
            )
        return range(max(count, 0))

    def tagged_fields(self) -> Mapping[int, memoryview]:
        """The raw tagged fields by tag; empty if the message is not flexible.

        A caller that knows no tags calls it to skip them, as KIP-482 requires.
        """
        if not self.flexible:
            return _NO_FIELDS
        if self.position < self.end and not self.data[self.position]:  # by far the most frequent
            self.position += 1
            return _NO_FIELDS
        count = self.uvarint()
        if count * 2 > self.end - self.position:
            raise ProtocolError(
                f"{count} tagged fields before byte {self.position}, "
                f"but only {self.end - self.position} bytes are left"
            )
        fields: dict[int, memoryview] = {}
        for _ in range(count):
            tag = self.uvarint()
            fields[tag] = self.take(self.uvarint())
        return fields


def _ends_early(size: int, start: int, end: int) -> ProtocolError:
    return ProtocolError(f"message ends early: {size} bytes wanted at byte {start} of {end}")
