# cython: boundscheck=False, wraparound=False, cdivision=True
"""The hash that gives keyed records their partition, equal to the Java client's.

``murmur2.pxd`` has the C types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from kafkaclient.types import Buffer

__all__ = ["murmur2", "partition_for_key"]

if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)

    def _uint32(data: bytes, at: int) -> int:
        """Four bytes as a little-endian number."""
        return int.from_bytes(data[at : at + 4], "little")


def murmur2(data: Buffer) -> int:
    """Java's ``Utils.murmur2``: the 32-bit MurmurHash2 of ``data``, as a signed integer."""
    checked = _as_bytes(data)
    unsigned = hash_bytes(checked, len(checked))
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """The partition of a keyed record: ``toPositive(murmur2(key)) % partition_count``.

    ``partition_count`` includes partitions without a leader. Raises ValueError if it is not
    positive.
    """
    if partition_count < 1:
        raise ValueError(f"partition_count must be at least 1, not {partition_count}")
    checked = _as_bytes(key)
    return (hash_bytes(checked, len(checked)) & 0x7FFFFFFF) % partition_count


def _as_bytes(data: Buffer) -> bytes:
    if type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"key must be bytes, bytearray or memoryview, not {type(data).__name__}")


def hash_bytes(data: bytes, size: int) -> int:
    """The hash of the first ``size`` bytes, unsigned. Compiled, ``data`` is a C pointer."""
    # Local variables, because these are constants to the C compiler.
    seed, m, mask = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF
    h = seed ^ (size & mask)
    at = 0
    while size - at >= 4:
        k = _uint32(data, at)
        k = k * m & mask
        k ^= k >> 24
        h = (h * m & mask) ^ (k * m & mask)
        at += 4
    left = size - at
    if left == 3:
        h ^= data[at + 2] << 16
    if left >= 2:
        h ^= data[at + 1] << 8
    if left >= 1:
        h ^= data[at]
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    return h ^ (h >> 15)
