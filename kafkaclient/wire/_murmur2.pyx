# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of ``_murmur2_py.py``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t

__all__ = ["murmur2", "partition_for_key"]

cdef uint32_t SEED = 0x9747B28C
cdef uint32_t M = 0x5BD1E995


def murmur2(data):
    """Java's ``Utils.murmur2``: the 32-bit MurmurHash2 of ``data``, as a signed integer."""
    return <int32_t>hash_bytes(as_bytes(data))


def partition_for_key(key, partition_count):
    """The partition of a keyed record: ``toPositive(murmur2(key)) % partition_count``.

    ``partition_count`` counts all partitions of the topic, available or not. Raises ValueError
    when it is not positive.
    """
    if partition_count < 1:
        raise ValueError(f"partition_count must be at least 1, not {partition_count}")
    return (hash_bytes(as_bytes(key)) & 0x7FFFFFFF) % partition_count


cdef inline bytes as_bytes(data):
    if type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"key must be bytes, bytearray or memoryview, not {type(data).__name__}")


cdef uint32_t hash_bytes(bytes data) noexcept:
    return hash_raw(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef uint32_t hash_raw(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = SEED ^ <uint32_t>size
    cdef uint32_t k

    while size >= 4:
        # Byte by byte, so that it is little-endian on every machine.
        k = p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24
        k *= M
        k ^= k >> 24
        h = (h * M) ^ (k * M)
        p += 4
        size -= 4

    if size == 3:
        h ^= <uint32_t>p[2] << 16
    if size >= 2:
        h ^= <uint32_t>p[1] << 8
    if size >= 1:
        h ^= p[0]
        h *= M

    h ^= h >> 13
    h *= M
    return h ^ (h >> 15)
