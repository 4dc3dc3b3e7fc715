cimport cython
from libc.stdint cimport uint8_t, uint32_t


@cython.locals(checked=bytes, unsigned=cython.longlong)
cpdef murmur2(data)
@cython.locals(checked=bytes)
cpdef partition_for_key(key, long long partition_count)
cdef bytes _as_bytes(data)
@cython.locals(
    seed=uint32_t, m=uint32_t, mask=uint32_t, h=uint32_t, k=uint32_t,
    second=uint32_t, third=uint32_t, fourth=uint32_t, at=Py_ssize_t, left=Py_ssize_t,
)
cdef uint32_t hash_bytes(const uint8_t* data, Py_ssize_t size) noexcept nogil
