# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Encodes records into the buffer of a batch; ``record_buffer.pyi`` has the docstrings.

``append`` writes a record directly into the buffer, without a Python object in between. It computes
sizes first: a record begins with its length, and a record that does not fit must change nothing.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kafkaclient.wire.varint cimport blob_size, put_blob, put_varint, varint_size, zigzag

from kafkaclient.errors import InvalidRecordError

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1
    # The str keeps the bytes if it is not ASCII, and has them already if it is.
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size)
    Py_ssize_t PySequence_Fast_GET_SIZE(object items)  # of a list or tuple
    PyObject* PySequence_Fast_GET_ITEM(object items, Py_ssize_t at)
    PyObject* PyTuple_GET_ITEM(object items, Py_ssize_t at)
    Py_ssize_t PyTuple_GET_SIZE(object items)
    ctypedef struct PyObject

__all__ = ["RecordBuffer", "fields_size", "headers_size", "record_size"]

cdef Py_ssize_t BATCH_OVERHEAD = 61
# The batch's length and a record's length are int32 on the wire.
cdef Py_ssize_t MAX_CAPACITY = 2**31 - 1


cdef class RecordBuffer:
    """See ``record_buffer.pyi``. The whole capacity is allocated with the first record."""

    def __init__(self, capacity):
        self.capacity = checked_capacity(capacity)
        self._data = bytearray(BATCH_OVERHEAD)
        self._start = <uint8_t*>PyByteArray_AS_STRING(self._data)
        self._allocated = BATCH_OVERHEAD
        self.size = BATCH_OVERHEAD
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self._frozen = False

    def reserve(self, capacity):
        self.capacity = max(self.capacity, checked_capacity(capacity))

    def append(self, timestamp_ms, key, value, headers=()):
        cdef int64_t timestamp = checked_timestamp(timestamp_ms)
        cdef bytes key_bytes = as_bytes(key, "key")
        cdef bytes value_bytes = as_bytes(value, "value")
        headers = plain_headers(headers)
        if self._frozen:
            raise RuntimeError("the batch is sealed: no record can be added")
        return self.put(timestamp, key_bytes, value_bytes, headers, headers_size(headers))

    cdef Py_ssize_t put(
        self, int64_t timestamp, bytes key_bytes, bytes value_bytes, headers, Py_ssize_t headers_size
    ) except -1:
        """``append`` with arguments that are known to be valid."""
        cdef Py_ssize_t before = self.size
        cdef uint8_t* end = self.begin(
            timestamp, field_size(key_bytes) + field_size(value_bytes) + headers_size
        )
        if end is NULL:
            return 0
        end = put_field(end, key_bytes)
        end = put_field(end, value_bytes)
        put_headers(end, headers)
        return self.size - before

    cdef uint8_t* begin(self, int64_t timestamp, Py_ssize_t fields) except? NULL:
        """Add a record, and return where the caller must write the ``fields`` bytes of its key,
        value and headers; NULL if the record does not fit."""
        cdef int64_t base = self.base_timestamp if self.count else timestamp
        cdef uint64_t timestamp_delta = zigzag(timestamp - base)
        cdef uint64_t offset_delta = zigzag(self.count)
        cdef Py_ssize_t body = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + fields
        cdef Py_ssize_t size = varint_size(zigzag(body)) + body
        if size > self.capacity - self.size:
            return NULL
        if size > self._allocated - self.size:
            self._resize(self.capacity)

        cdef uint8_t* end = self._start + self.size
        end = put_varint(end, zigzag(body))
        end[0] = 0  # attributes: none are defined
        end = put_varint(end + 1, timestamp_delta)
        end = put_varint(end, offset_delta)

        self.base_timestamp = base
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        self.size += size
        return end

    def freeze(self):
        self._frozen = True
        self._resize(self.size)
        data, self._data = self._data, bytearray()
        self._start = NULL
        self._allocated = 0
        return data

    cdef int _resize(self, Py_ssize_t size) except -1:
        PyByteArray_Resize(self._data, size)
        self._start = <uint8_t*>PyByteArray_AS_STRING(self._data)
        self._allocated = size
        return 0


def record_size(int64_t offset_delta, int64_t timestamp_delta, key, value, headers=()):
    cdef Py_ssize_t body = (
        1
        + varint_size(zigzag(timestamp_delta))
        + varint_size(zigzag(offset_delta))
        + c_fields_size(key, value, headers)
    )
    return varint_size(zigzag(body)) + body


def fields_size(key, value, headers=()):
    return c_fields_size(key, value, headers)


cdef Py_ssize_t c_fields_size(key, value, headers) except -1:
    cdef Py_ssize_t size = field_size(as_bytes(key, "key"))
    size += field_size(as_bytes(value, "value"))
    return size + headers_size(plain_headers(headers))


# --- checks -----------------------------------------------------------------------------------


cdef Py_ssize_t checked_capacity(capacity) except -1:
    if not 0 <= capacity <= MAX_CAPACITY:
        raise ValueError(f"capacity must be between 0 and 2**31-1 bytes, not {capacity}")
    return capacity


cdef inline int64_t checked_timestamp(timestamp_ms) except -1:
    cdef int overflow = 0
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"timestamp must be int, not {type(timestamp_ms).__name__}")
    cdef int64_t timestamp = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
    if overflow or timestamp < 0:
        raise InvalidRecordError(
            f"timestamp must be milliseconds between 0 and 2**63-1, not {timestamp_ms}"
        )
    return timestamp


cdef inline bytes as_bytes(data, str what):
    # Other types are rare. They are copied because their memory could move.
    if data is None or isinstance(data, bytes):
        return <bytes>data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise TypeError(
        f"{what} must be bytes, bytearray, memoryview or None, not {type(data).__name__}"
    )


cdef plain_headers(headers):
    """The headers as :func:`headers_size` takes them."""
    if headers_size(headers) >= 0:
        return headers
    cdef list plain = []
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"header key must be str, not {type(name).__name__}")
        encoded = (<str>name).encode()
        # decode() gives a plain str in place of a subclass.
        plain.append((encoded.decode(), as_bytes(content, "header value")))
    return plain


# --- sizes --------------------------------------------------------------------------------------


cdef inline Py_ssize_t field_size(bytes data) noexcept:
    return blob_size(-1 if data is None else PyBytes_GET_SIZE(data))


cpdef Py_ssize_t headers_size(headers) noexcept:
    if type(headers) is not tuple and type(headers) is not list:
        return -1
    cdef Py_ssize_t at, name_size, count = PySequence_Fast_GET_SIZE(headers)
    cdef Py_ssize_t size = varint_size(zigzag(count))
    for at in range(count):
        pair = <object>PySequence_Fast_GET_ITEM(headers, at)
        if type(pair) is not tuple or PyTuple_GET_SIZE(pair) != 2:
            return -1
        name, content = <object>PyTuple_GET_ITEM(pair, 0), <object>PyTuple_GET_ITEM(pair, 1)
        if type(name) is not str or not (content is None or isinstance(content, bytes)):
            return -1
        if PyUnicode_AsUTF8AndSize(name, &name_size) is NULL:
            PyErr_Clear()
            return -1
        size += blob_size(name_size) + field_size(<bytes>content)
    return size


# --- writing: the callers have checked that there is room -----------------------------------------


cdef inline uint8_t* put_field(uint8_t* end, bytes data) noexcept:
    if data is None:
        return put_blob(end, NULL, -1)
    return put_blob(end, <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef uint8_t* put_headers(uint8_t* end, headers) noexcept:
    cdef Py_ssize_t at, name_size, count = PySequence_Fast_GET_SIZE(headers)
    cdef const char* name
    end = put_varint(end, zigzag(count))
    for at in range(count):
        pair = <object>PySequence_Fast_GET_ITEM(headers, at)
        name = PyUnicode_AsUTF8AndSize(<object>PyTuple_GET_ITEM(pair, 0), &name_size)
        end = put_blob(end, <const uint8_t*>name, name_size)
        end = put_field(end, <bytes>PyTuple_GET_ITEM(pair, 1))
    return end
