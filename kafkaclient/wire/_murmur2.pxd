from libc.stdint cimport uint32_t

cdef uint32_t hash_bytes(bytes data) noexcept
