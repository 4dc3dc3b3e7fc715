"""The pure-Python twin of ``_murmur2.pyx``: the same names, results and errors, only slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkaclient.types import Buffer

__all__ = ["murmur2", "partition_for_key"]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: Buffer) -> int:
    """Java's ``Utils.murmur2``: the 32-bit MurmurHash2 of ``data``, as a signed integer."""
    unsigned = _hash(_as_bytes(data))
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """The partition of a keyed record: ``toPositive(murmur2(key)) % partition_count``.

    ``partition_count`` counts all partitions of the topic, available or not. Raises ValueError
    when it is not positive.
    """
    if partition_count < 1:
        raise ValueError(f"partition_count must be at least 1, not {partition_count}")
    return (_hash(_as_bytes(key)) & 0x7FFFFFFF) % partition_count


def _as_bytes(data: Buffer) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"key must be bytes, bytearray or memoryview, not {type(data).__name__}")


def _hash(data: bytes) -> int:
    h = _SEED ^ (len(data) & _MASK)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if len(data) > whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)
