# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The rows of an Arrow stream; ``arrow_rows.pyi`` has the docstrings.

Rows are read where they are, in Arrow's buffers (arrow.apache.org/docs/format/Columnar.html).
The stream's producer is not trusted with memory: every offset is checked before it is followed.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy

from kafkaclient.producer.bulk.rows cimport Row, Rows
from kafkaclient.wire.varint cimport blob_size, put_blob, put_varint, varint_size, zigzag

from kafkaclient.errors import InvalidRecordError

__all__ = ["Blobs", "Columns", "HeaderLists", "Numbers"]

cdef enum Layout:
    OFFSETS_32
    OFFSETS_64
    FIXED
    VIEWS

cdef dict LAYOUTS = {
    "offsets32": OFFSETS_32,
    "offsets64": OFFSETS_64,
    "fixed": FIXED,
    "views": VIEWS,
}

cdef struct Part:
    const uint8_t* data
    int64_t size


@cython.final
cdef class Blobs:
    cdef object _array  # owns the memory
    cdef Layout _layout
    cdef int64_t _first
    cdef int64_t _width
    cdef const uint8_t* _valid
    cdef const uint8_t* _index  # offsets or views
    cdef Part* _parts
    cdef int32_t _part_count

    def __init__(self, array, layout):
        buffers = array.buffers()
        self._array = array
        self._layout = LAYOUTS[layout]
        self._first = array.offset
        self._width = array.type.byte_width if layout == "fixed" else 0
        self._valid = address(buffers[0])
        data = buffers[1:]
        if layout != "fixed":
            self._index = address(buffers[1])
            data = buffers[2:]
        self._parts = <Part*>PyMem_Malloc(max(1, len(data)) * sizeof(Part))
        if self._parts is NULL:
            raise MemoryError
        for buffer in data:
            self._parts[self._part_count].data = address(buffer)
            self._parts[self._part_count].size = 0 if buffer is None else buffer.size
            self._part_count += 1

    def __dealloc__(self):
        PyMem_Free(self._parts)

    cdef bint locate(self, int64_t row, const uint8_t** data, Py_ssize_t* size) noexcept:
        """Point to a row's bytes; False: they are outside of the array's buffers."""
        cdef int64_t at = self._first + row
        cdef int64_t start, end
        cdef int32_t part = 0
        cdef const uint8_t* view
        if not is_valid(self._valid, at):
            size[0] = -1
            return True
        if self._layout == OFFSETS_32:
            start, end = load_32(self._index + 4 * at), load_32(self._index + 4 * at + 4)
        elif self._layout == OFFSETS_64:
            start, end = load_64(self._index + 8 * at), load_64(self._index + 8 * at + 8)
        elif self._layout == FIXED:
            start, end = at * self._width, (at + 1) * self._width
        else:
            view = self._index + 16 * at
            end = load_32(view)
            if 0 <= end <= 12:
                data[0], size[0] = view + 4, end
                return True
            part, start = load_32(view + 8), load_32(view + 12)
            end = -1 if end < 0 else end + start
        if not 0 <= part < self._part_count or not 0 <= start <= end <= self._parts[part].size:
            return False
        data[0], size[0] = self._parts[part].data + start, end - start
        return True

    cdef bytes get(self, int64_t row):
        cdef const uint8_t* data = NULL
        cdef Py_ssize_t size = -1
        if not self.locate(row, &data, &size):
            raise InvalidRecordError("its Arrow data is malformed")
        return None if size < 0 else PyBytes_FromStringAndSize(<const char*>data, size)


@cython.final
cdef class Numbers:
    cdef object _array
    cdef int64_t _first
    cdef const uint8_t* _valid
    cdef const uint8_t* _data

    def __init__(self, array):
        valid, data = array.buffers()
        self._array = array
        self._first = array.offset
        self._valid, self._data = address(valid), address(data)

    cdef int64_t get(self, int64_t row, bint* good) noexcept:
        """-1 for null; ``good`` becomes False for a negative number."""
        cdef int64_t at = self._first + row
        if not is_valid(self._valid, at):
            return -1
        cdef int64_t number = load_64(self._data + 8 * at)
        if number < 0:
            good[0] = False
        return number

    cdef object item(self, int64_t row):
        cdef bint good = True
        cdef int64_t number = self.get(row, &good)
        return None if number == -1 and good else number


@cython.final
cdef class HeaderLists:
    cdef object _array
    cdef object _entries
    cdef Blobs _names
    cdef Blobs _contents
    cdef bint _large
    cdef int64_t _first
    cdef int64_t _base
    cdef int64_t _entries_first
    cdef int64_t _entry_count
    cdef const uint8_t* _valid
    cdef const uint8_t* _entries_valid
    cdef const uint8_t* _offsets

    def __init__(
        self, array, layout, base, entries, Blobs names not None, Blobs contents not None
    ):
        valid, offsets = array.buffers()[:2]
        self._array, self._entries = array, entries
        self._names, self._contents = names, contents
        self._large = layout == "offsets64"
        self._first, self._base = array.offset, base
        self._entries_first, self._entry_count = entries.offset, len(entries)
        self._valid, self._offsets = address(valid), address(offsets)
        self._entries_valid = address(entries.buffers()[0])

    cdef bint bounds(self, int64_t row, int64_t* start, int64_t* end) noexcept:
        """The range of a row's headers; False: the range is outside of the array."""
        cdef int64_t at = self._first + row
        cdef int width = 8 if self._large else 4
        start[0] = end[0] = 0
        if not is_valid(self._valid, at):
            return True
        cdef const uint8_t* offset = self._offsets + width * at
        start[0] = (load_64(offset) if self._large else load_32(offset)) - self._base
        offset += width
        end[0] = (load_64(offset) if self._large else load_32(offset)) - self._base
        return 0 <= start[0] <= end[0] <= self._entry_count

    cdef Py_ssize_t size(self, int64_t row) noexcept:
        """The size of a row's encoded headers in bytes; -1: they cannot be sent."""
        cdef int64_t at, end
        cdef const uint8_t* data
        cdef Py_ssize_t name, content, size
        if not self.bounds(row, &at, &end):
            return -1
        size = varint_size(zigzag(end - at))
        while at < end:
            if not is_valid(self._entries_valid, self._entries_first + at):
                return -1
            if not self._names.locate(at, &data, &name) or name < 0:
                return -1
            if not self._contents.locate(at, &data, &content):
                return -1
            size += blob_size(name) + blob_size(content)
            at += 1
        return size

    cdef uint8_t* put(self, int64_t row, uint8_t* end) noexcept:
        cdef int64_t at, last
        cdef const uint8_t* data
        cdef Py_ssize_t size
        self.bounds(row, &at, &last)
        end = put_varint(end, zigzag(last - at))
        while at < last:
            self._names.locate(at, &data, &size)
            end = put_blob(end, data, size)
            self._contents.locate(at, &data, &size)
            end = put_blob(end, data, size)
            at += 1
        return end

    cdef list get(self, int64_t row):
        cdef int64_t at, end
        cdef list headers = []
        cdef bytes name
        if not self.bounds(row, &at, &end):
            raise InvalidRecordError("its Arrow data is malformed")
        while at < end:
            name = None
            if is_valid(self._entries_valid, self._entries_first + at):
                name = self._names.get(at)
            headers.append((None if name is None else name.decode(), self._contents.get(at)))
            at += 1
        return headers


@cython.final
cdef class Columns(Rows):
    cdef Py_ssize_t _rows
    cdef Blobs _key
    cdef Blobs _value
    cdef HeaderLists _headers
    cdef Numbers _timestamps
    cdef Numbers _partitions
    cdef int64_t _timestamp
    cdef int64_t _partition

    def __init__(
        self,
        rows,
        Blobs key,
        Blobs value,
        HeaderLists headers,
        Numbers timestamps,
        Numbers partitions,
        timestamp_ms,
        partition,
    ):
        self._rows = rows
        self._key, self._value, self._headers = key, value, headers
        self._timestamps, self._partitions = timestamps, partitions
        self._timestamp = -1 if timestamp_ms is None else timestamp_ms
        self._partition = -1 if partition is None else partition

    def __len__(self):
        return self._rows

    def record(self, Py_ssize_t at):
        timestamp = None if self._timestamps is None else self._timestamps.item(at)
        if timestamp is None and self._timestamp >= 0:
            timestamp = self._timestamp
        partition = None if self._partitions is None else self._partitions.item(at)
        if partition is None and self._partition >= 0:
            partition = self._partition
        return (
            None if self._value is None else self._value.get(at),
            None if self._key is None else self._key.get(at),
            partition,
            timestamp,
            () if self._headers is None else self._headers.get(at),
        )

    def replace(self, Py_ssize_t at, value, key, timestamp, headers):
        """Columns are not serialized, so no value is replaced."""

    cdef int locate(self, Py_ssize_t at, Row* row) except -1:
        cdef bint good = True
        row.key_size = row.value_size = -1
        row.headers_size = 1
        row.timestamp = row.partition = -1
        if self._key is not None and not self._key.locate(at, &row.key, &row.key_size):
            return 0
        if self._value is not None and not self._value.locate(at, &row.value, &row.value_size):
            return 0
        if self._headers is not None:
            row.headers_size = self._headers.size(at)
            if row.headers_size < 0:
                return 0
        if self._timestamps is not None:
            row.timestamp = self._timestamps.get(at, &good)
        if row.timestamp < 0:
            row.timestamp = self._timestamp
        if self._partitions is not None:
            row.partition = self._partitions.get(at, &good)
        if row.partition < 0:
            row.partition = self._partition
        return good

    cdef uint8_t* put_headers(self, Py_ssize_t at, uint8_t* end) noexcept:
        if self._headers is not None:
            return self._headers.put(at, end)
        end[0] = 0
        return end + 1


cdef uint8_t* address(buffer) except? NULL:
    return NULL if buffer is None else <uint8_t*><uintptr_t>buffer.address


cdef inline bint is_valid(const uint8_t* bitmap, int64_t at) noexcept:
    return bitmap is NULL or (bitmap[at >> 3] >> (at & 7)) & 1


cdef inline int64_t load_32(const uint8_t* at) noexcept:
    # memcpy, because the buffers of other libraries need not be aligned.
    cdef int32_t number
    memcpy(&number, at, 4)
    return number


cdef inline int64_t load_64(const uint8_t* at) noexcept:
    cdef int64_t number
    memcpy(&number, at, 8)
    return number
