"""Writes the Kafka protocol's primitive types."""

from __future__ import annotations

import struct
from functools import lru_cache

__all__ = ["INT16", "INT32", "NO_TAGS", "compact_string", "string", "uvarint"]

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")

NO_TAGS = b"\x00"
"""The end of a struct without tagged fields (KIP-482)."""


# The same few texts and numbers are written again and again.
_remembered = lru_cache(maxsize=1024)


@_remembered
def string(text: str | None) -> bytes:
    """Raises ValueError for more than 32767 bytes."""
    if text is None:
        return INT16.pack(-1)
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ValueError(f"string of {len(encoded)} bytes; at most 32767 fit")
    return INT16.pack(len(encoded)) + encoded


@_remembered
def compact_string(text: str | None) -> bytes:
    if text is None:
        return uvarint(0)
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


@_remembered
def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
