from libc.stdint cimport int64_t, uint8_t


cdef class RecordBuffer:
    cdef bytearray _data
    cdef uint8_t* _start
    cdef Py_ssize_t _allocated
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t capacity
    cdef readonly int64_t count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef bint _frozen

    cdef Py_ssize_t put(
        self, int64_t timestamp, bytes key, bytes value, headers, Py_ssize_t headers_size
    ) except -1
    cdef uint8_t* begin(self, int64_t timestamp, Py_ssize_t fields) except? NULL
    cdef int _resize(self, Py_ssize_t size) except -1


cdef plain_headers(headers)
cpdef Py_ssize_t headers_size(headers) noexcept
cdef uint8_t* put_headers(uint8_t* end, headers) noexcept
