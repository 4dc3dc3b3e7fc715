cimport cython
from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    static CYTHON_INLINE uint32_t kafkaclient_uint32(const uint8_t *data, Py_ssize_t at) {
        data += at;
        return data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
    }
    """
    uint32_t _uint32 "kafkaclient_uint32" (const uint8_t* data, Py_ssize_t at) noexcept nogil


@cython.locals(checked=bytes, unsigned=cython.longlong)
cpdef murmur2(data)
@cython.locals(checked=bytes)
cpdef partition_for_key(key, long long partition_count)
cdef bytes _as_bytes(data)
@cython.locals(
    seed=uint32_t, m=uint32_t, mask=uint32_t, h=uint32_t, k=uint32_t, at=Py_ssize_t, left=Py_ssize_t
)
cdef uint32_t hash_bytes(const uint8_t* data, Py_ssize_t size) noexcept nogil
