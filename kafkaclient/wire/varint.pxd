"""Writes numbers and byte strings into records; the caller checks that there is room."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t varint_size(uint64_t value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t* put_varint(uint8_t* end, uint64_t value) noexcept nogil:
    while value >= 0x80:
        end[0] = <uint8_t>(value | 0x80)
        end += 1
        value >>= 7
    end[0] = <uint8_t>value
    return end + 1


cdef inline Py_ssize_t blob_size(Py_ssize_t size) noexcept nogil:
    """The encoded size of ``size`` bytes behind their length; -1 means null."""
    return 1 if size < 0 else varint_size(zigzag(size)) + size


cdef inline uint8_t* put_blob(uint8_t* end, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    if size < 0:
        end[0] = 1  # -1 as a zigzag varint
        return end + 1
    end = put_varint(end, zigzag(size))
    memcpy(end, data, size)
    return end + size
