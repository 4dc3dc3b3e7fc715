"""Writes the Kafka protocol's primitive types."""

from __future__ import annotations

import struct
from functools import lru_cache

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

NO_TAGS = b"\x00"
"""The end of a struct without tagged fields (KIP-482)."""

_REQUEST_HEADER = struct.Struct(">hhi")

# The same few texts and numbers are written in every request.
_cached = lru_cache(maxsize=1024)


def request(
    api_key: int, version: int, correlation_id: int, client_id: str, *, flexible: bool
) -> bytearray:
    """The beginning of a request: 4 bytes for the frame's size, and the header."""
    frame = bytearray(INT32.size)
    frame += _REQUEST_HEADER.pack(api_key, version, correlation_id)
    frame += string(client_id)  # never compact: see the schema of RequestHeader
    return frame + NO_TAGS if flexible else frame


def framed(request: bytearray) -> bytes:
    """The request, with its size in the first 4 bytes."""
    INT32.pack_into(request, 0, len(request) - INT32.size)
    return bytes(request)


@_cached
def string(text: str | None) -> bytes:
    """A string with a length of 2 bytes; raises ValueError for more than 32767 bytes."""
    if text is None:
        return INT16.pack(-1)
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ValueError(f"string of {len(encoded)} bytes; at most 32767 fit")
    return INT16.pack(len(encoded)) + encoded


@_cached
def compact_string(text: str | None) -> bytes:
    if text is None:
        return uvarint(0)
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


@_cached
def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_count(elements: int) -> bytes:
    """The length of an array in a flexible version (KIP-482); -1: the array is null."""
    return uvarint(elements + 1)
