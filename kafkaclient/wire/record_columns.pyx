# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decodes the records of batches into columns; ``record_columns.pyi`` has the docstrings.

The bytes come from a peer: every length is checked against the end of its record before it is used.
Memory is reserved once per batch: a column of bytes cannot be larger than the batch's bytes.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.arrow import BlobColumn, ColumnBuffers, HeaderColumn

__all__ = ["RecordColumns"]

cdef int64_t MIN_RECORD_BYTES = 7
cdef int64_t MAX_DELTA = 2**31 - 1
cdef int64_t MAX_BYTES = 2**31 - 1


@cython.final
cdef class Store:
    """Memory that grows, and becomes a bytearray without a copy."""

    cdef bytearray _data
    cdef uint8_t* at
    cdef Py_ssize_t _room

    def __cinit__(self, Py_ssize_t room):
        self._data = bytearray()
        self._room = 0
        self.reserve(max(room, 8))

    cdef int reserve(self, Py_ssize_t room) except -1:
        if room > self._room:
            room = max(room, 2 * self._room)
            PyByteArray_Resize(self._data, room)
            self._room = room
            self.at = <uint8_t*>PyByteArray_AS_STRING(self._data)
        return 0

    cdef bytearray take(self, Py_ssize_t size):
        PyByteArray_Resize(self._data, size)
        return self._data


@cython.final
cdef class Blobs:
    """A column of byte strings."""

    cdef Store _offsets
    cdef Store _data
    cdef Store _valid
    cdef Py_ssize_t size
    cdef Py_ssize_t nulls

    def __cinit__(self, Py_ssize_t size_hint):
        self._offsets = Store(64)
        self._data = Store(size_hint)
        self._valid = Store(8)
        (<int32_t*>self._offsets.at)[0] = 0

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        """Reserve memory for ``rows`` rows in total, and for ``size`` more bytes."""
        self._offsets.reserve(4 * (rows + 1))
        self._valid.reserve((rows + 7) // 8)
        self._data.reserve(self.size + size)
        return 0

    cdef inline void put(self, Py_ssize_t row, const uint8_t* data, Py_ssize_t size) noexcept:
        """Store the bytes of a row; a ``size`` of -1 means null."""
        cdef uint8_t bit = <uint8_t>(1 << (row & 7))
        if size < 0:
            self._valid.at[row >> 3] &= ~bit
            self.nulls += 1
        else:
            self._valid.at[row >> 3] |= bit
            memcpy(self._data.at + self.size, data, size)
            self.size += size
        (<int32_t*>self._offsets.at)[row + 1] = <int32_t>self.size

    cdef void cut(self, Py_ssize_t rows, Py_ssize_t nulls) noexcept:
        self.size = (<int32_t*>self._offsets.at)[rows]
        self.nulls = nulls

    cdef object take(self, Py_ssize_t rows):
        cdef Py_ssize_t size = (rows + 7) // 8
        valid = None
        if self.nulls:
            if rows & 7:  # the bits behind the last row are ones
                self._valid.at[size - 1] |= <uint8_t>(0xFF << (rows & 7))
            valid = self._valid.take(size)
        return BlobColumn(
            self._offsets.take(4 * (rows + 1)), self._data.take(self.size), valid, self.nulls
        )


@cython.final
cdef class RecordColumns:
    cdef bint _with_headers
    cdef Py_ssize_t _rows
    cdef Py_ssize_t _entries
    cdef Store _offsets
    cdef Store _timestamps
    cdef Store _types
    cdef Blobs _key
    cdef Blobs _value
    cdef Store _starts
    cdef Blobs _names
    cdef Blobs _contents

    def __cinit__(self, headers=False, Py_ssize_t size_hint=0):
        self._with_headers = headers
        self._offsets, self._timestamps, self._types = Store(64), Store(64), Store(32)
        self._key, self._value = Blobs(0), Blobs(size_hint)
        self._starts = Store(64)
        (<int32_t*>self._starts.at)[0] = 0
        self._names, self._contents = Blobs(0), Blobs(0)

    @property
    def rows(self):
        return self._rows

    @property
    def nbytes(self):
        cdef Py_ssize_t blobs = self._key.size + self._value.size
        return blobs + self._names.size + self._contents.size + MIN_RECORD_BYTES * self._rows

    def append(
        self,
        records,
        int64_t count,
        int64_t base_offset,
        int64_t base_timestamp,
        int64_t append_time,
        int64_t start,
        int64_t end,
    ):
        cdef Py_buffer buffer
        cdef Py_ssize_t rows = self._rows, entries = self._entries
        cdef Py_ssize_t[4] nulls
        PyObject_GetBuffer(records, &buffer, PyBUF_SIMPLE)
        try:
            if not 0 <= count <= buffer.len // MIN_RECORD_BYTES:
                raise ProtocolError(f"batch of {count} records in {buffer.len} bytes")
            if self.nbytes + buffer.len > MAX_BYTES:
                raise ValueError("too much for columns with offsets of 32 bits")
            self._reserve(rows + count, buffer.len)
            nulls[0], nulls[1] = self._key.nulls, self._value.nulls
            nulls[2], nulls[3] = self._names.nulls, self._contents.nulls
            try:
                self._read(
                    <const uint8_t*>buffer.buf,
                    <const uint8_t*>buffer.buf + buffer.len,
                    count,
                    base_offset,
                    base_timestamp,
                    append_time,
                    start,
                    end,
                )
            except ProtocolError:
                self._rows, self._entries = rows, entries
                self._key.cut(rows, nulls[0])
                self._value.cut(rows, nulls[1])
                if self._with_headers:
                    self._names.cut(entries, nulls[2])
                    self._contents.cut(entries, nulls[3])
                raise
        finally:
            PyBuffer_Release(&buffer)

    cdef int _reserve(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        self._offsets.reserve(8 * rows)
        self._timestamps.reserve(8 * rows)
        self._types.reserve(4 * rows)
        self._key.reserve(rows, size)
        self._value.reserve(rows, size)
        if self._with_headers:
            self._starts.reserve(4 * (rows + 1))
            self._names.reserve(self._entries, size)
            self._contents.reserve(self._entries, size)
        return 0

    cdef int _read(
        self,
        const uint8_t* at,
        const uint8_t* stop,
        int64_t count,
        int64_t base_offset,
        int64_t base_timestamp,
        int64_t append_time,
        int64_t start,
        int64_t end,
    ) except -1:
        cdef int64_t size, timestamp_delta, delta, offset, key_size, value_size
        cdef const uint8_t* last
        cdef const uint8_t* key
        cdef const uint8_t* value
        cdef Py_ssize_t row = self._rows
        cdef bint wanted
        cdef bint stamped = append_time >= 0
        while count > 0:
            count -= 1
            if not varint(&at, stop, &size):
                raise malformed("varint without an end")
            if not 0 < size <= stop - at:
                raise malformed(f"record of {size} bytes where {stop - at} are left")
            last = at + size
            at += 1  # attributes: none are defined
            if not (varint(&at, last, &timestamp_delta) and varint(&at, last, &delta)):
                raise malformed("record without timestamp and offset")
            if not (blob(&at, last, &key, &key_size) and blob(&at, last, &value, &value_size)):
                raise malformed("field larger than its record")
            if not 0 <= delta <= MAX_DELTA or base_offset > INT64_MAX - delta:
                raise malformed(f"record at {delta} from its batch's offset")
            offset = base_offset + delta
            wanted = start <= offset < end
            if at < last and at[0] == 0:
                at += 1
            else:
                at = self._read_headers(at, last, wanted and self._with_headers)
            if at != last:
                raise malformed("record's fields do not end with it")
            if not wanted:
                continue
            (<int64_t*>self._offsets.at)[row] = offset
            (<int64_t*>self._timestamps.at)[row] = (
                append_time if stamped
                else <int64_t>(<uint64_t>base_timestamp + <uint64_t>timestamp_delta)
            )
            (<int32_t*>self._types.at)[row] = stamped
            self._key.put(row, key, key_size)
            self._value.put(row, value, value_size)
            row += 1
            if self._with_headers:
                (<int32_t*>self._starts.at)[row] = <int32_t>self._entries
        if at != stop:
            raise malformed(f"{stop - at} bytes after the batch's last record")
        self._rows = row
        return 0

    cdef const uint8_t* _read_headers(
        self, const uint8_t* at, const uint8_t* last, bint wanted
    ) except NULL:
        cdef int64_t count, name_size, content_size
        cdef const uint8_t* name
        cdef const uint8_t* content
        if not varint(&at, last, &count) or not 0 <= count <= last - at:
            raise malformed("more headers than the record has room for")
        while count > 0:
            count -= 1
            if not (blob(&at, last, &name, &name_size) and blob(&at, last, &content, &content_size)):
                raise malformed("field larger than its record")
            if name_size < 0:
                raise malformed("record header without a key")
            check_utf8(name, name_size)
            if wanted:
                self._names.reserve(self._entries + 1, name_size)
                self._contents.reserve(self._entries + 1, 0 if content_size < 0 else content_size)
                self._names.put(self._entries, name, name_size)
                self._contents.put(self._entries, content, content_size)
                self._entries += 1
        return at

    def take(self):
        headers = None
        if self._with_headers:
            headers = HeaderColumn(
                self._starts.take(4 * (self._rows + 1)),
                self._entries,
                self._names.take(self._entries),
                self._contents.take(self._entries),
            )
        return ColumnBuffers(
            self._rows,
            self._offsets.take(8 * self._rows),
            self._timestamps.take(8 * self._rows),
            self._types.take(4 * self._rows),
            self._key.take(self._rows),
            self._value.take(self._rows),
            headers,
        )


cdef object malformed(str why):
    return ProtocolError(why)


cdef inline bint varint(const uint8_t** at, const uint8_t* stop, int64_t* number) noexcept:
    """A zigzag varint of at most 64 bits."""
    cdef const uint8_t* p = at[0]
    cdef uint64_t zigzag = 0
    cdef int shift = 0
    cdef uint8_t byte
    while p < stop:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return False
        zigzag |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            at[0] = p
            number[0] = <int64_t>(zigzag >> 1) ^ -<int64_t>(zigzag & 1)
            return True
        shift += 7
    return False


cdef inline bint blob(
    const uint8_t** at, const uint8_t* stop, const uint8_t** data, int64_t* size
) noexcept:
    """Bytes behind their length; a size of -1 means null."""
    if not varint(at, stop, size) or not -1 <= size[0] <= stop - at[0]:
        return False
    data[0] = at[0]
    if size[0] > 0:
        at[0] += size[0]
    return True


cdef int check_utf8(const uint8_t* text, Py_ssize_t size) except -1:
    cdef Py_ssize_t n
    for n in range(size):
        if text[n] >= 0x80:
            break
    else:
        return 0
    try:
        PyUnicode_DecodeUTF8(<const char*>text, size, NULL)
    except UnicodeDecodeError as error:
        raise ProtocolError(f"record header's key is not UTF-8: {error}") from error
    return 0
