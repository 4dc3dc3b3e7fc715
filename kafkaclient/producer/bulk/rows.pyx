# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records in bulk, into the open batches of a topic; ``rows.pyi`` has the docstrings.

A record's way through this file: :meth:`Rows.pour` -> ``Rows.put`` -> ``locate`` (where are its key
and value?) -> ``TopicAppendSlots.find`` (which batch?) -> ``RecordBuffer.begin`` (is there room?),
then its bytes are copied there. No Python object is made for a record.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from kafkaclient.producer.batches.direct_append cimport AppendSlot, TopicAppendSlots
from kafkaclient.wire.record_buffer cimport headers_size, plain_headers, put_headers
from kafkaclient.wire.varint cimport blob_size, put_blob

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1

__all__ = ["Rows", "Values"]


cdef class Rows:
    cdef int locate(self, Py_ssize_t at, Row* row) except -1:
        """Set ``row`` to where the key, the value and the headers are.

        Returns 0 if the row cannot be sent in this form."""
        raise NotImplementedError

    cdef uint8_t* put_headers(self, Py_ssize_t at, uint8_t* end) noexcept:
        """Write the encoded headers of a row for which ``locate`` has returned 1."""
        return end

    def check(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t largest, int64_t partitions):
        cdef Row row
        cdef Py_ssize_t at
        for at in range(start, min(stop, len(self))):
            if not self.locate(at, &row) or row.partition >= partitions:
                return at
            if blob_size(row.key_size) + blob_size(row.value_size) + row.headers_size > largest:
                return at
        return stop

    def pour(
        self, TopicAppendSlots slots not None, Py_ssize_t start, Py_ssize_t stop, int64_t now,
        list runs,
    ):
        cdef list touched = []
        cdef AppendSlot slot
        stop = min(stop, len(self))
        try:
            while start < stop and self.put(slots, start, now, touched):
                start += 1
        finally:
            for slot in touched:
                runs.append(slot.end_run())
        return start

    cdef bint put(self, TopicAppendSlots slots, Py_ssize_t at, int64_t now, list touched) except -1:
        cdef Row row
        if not self.locate(at, &row):
            return False
        cdef AppendSlot slot = slots.find(row.partition, row.key, row.key_size)
        if slot is None or slot._buffer is None:
            return False
        cdef int64_t timestamp = now if row.timestamp < 0 else row.timestamp
        cdef Py_ssize_t fields = blob_size(row.key_size) + blob_size(row.value_size)
        cdef uint8_t* end = slot._buffer.begin(timestamp, fields + row.headers_size)
        if end is NULL:
            return False
        end = put_blob(end, row.key, row.key_size)
        end = put_blob(end, row.value, row.value_size)
        self.put_headers(at, end)
        if slot.count_record(timestamp):
            touched.append(slot)
        return True


@cython.final
cdef class Values(Rows):
    cdef list _values
    cdef list _keys
    cdef list _timestamps
    cdef list _row_headers
    cdef object _partition
    cdef object _timestamp
    cdef object _headers
    cdef bytes _encoded_headers
    cdef Row _common

    def __init__(
        self, list values not None, list keys, partition, timestamp_ms, headers,
        list timestamps=None, list row_headers=None,
    ):
        for column in (keys, timestamps, row_headers):
            if column is not None and len(column) != len(values):
                raise ValueError("each column must have as many items as there are values")
        self._values, self._keys = values, keys
        self._partition, self._timestamp, self._headers = partition, timestamp_ms, headers
        self._timestamps, self._row_headers = timestamps, row_headers
        self._encoded_headers = encoded_headers(headers)
        self._common.key_size = self._common.value_size = -1
        self._common.headers_size = len(self._encoded_headers)
        self._common.timestamp = -1 if timestamp_ms is None else timestamp_ms
        self._common.partition = -1 if partition is None else partition

    def __len__(self):
        return len(self._values)

    def record(self, Py_ssize_t at):
        key = None if self._keys is None else self._keys[at]
        timestamp, headers = self._timestamp, self._headers
        if self._timestamps is not None and self._timestamps[at] is not None:
            timestamp = self._timestamps[at]
        if self._row_headers is not None and self._row_headers[at] is not None:
            headers = self._row_headers[at]
        return self._values[at], key, self._partition, timestamp, headers

    def replace(self, Py_ssize_t at, value, key, timestamp, headers):
        self._values[at] = value
        if self._keys is not None:
            self._keys[at] = key
        if self._timestamps is not None:
            self._timestamps[at] = timestamp
        if self._row_headers is not None:
            self._row_headers[at] = headers

    cdef int locate(self, Py_ssize_t at, Row* row) except -1:
        row[0] = self._common
        if not point(self._values, at, &row.value, &row.value_size):
            return 0
        if self._keys is not None and not point(self._keys, at, &row.key, &row.key_size):
            return 0
        if self._timestamps is not None and not as_time(self._timestamps, at, &row.timestamp):
            return 0
        if self._row_headers is None:
            return 1
        headers = <object>PyList_GET_ITEM(self._row_headers, at)
        if headers is None:
            return 1
        if type(headers) is list:  # the caller may change its lists later
            headers = self._row_headers[at] = tuple(headers)
        row.headers_size = headers_size(headers)
        return row.headers_size >= 0

    cdef uint8_t* put_headers(self, Py_ssize_t at, uint8_t* end) noexcept:
        if self._row_headers is not None:
            headers = <object>PyList_GET_ITEM(self._row_headers, at)
            if headers is not None:
                return put_headers(end, headers)
        memcpy(end, PyBytes_AS_STRING(self._encoded_headers), self._common.headers_size)
        return end + self._common.headers_size


cdef inline bint as_time(list items, Py_ssize_t at, int64_t* timestamp):
    """Read an item, unless it is None; False: the item is no time that a record can have."""
    cdef object item = <object>PyList_GET_ITEM(items, at)
    cdef int overflow = 0
    if item is None:
        return True
    if type(item) is not int:
        return False
    timestamp[0] = PyLong_AsLongLongAndOverflow(item, &overflow)
    return not overflow and timestamp[0] >= 0


cdef inline bint point(
    list items, Py_ssize_t at, const uint8_t** data, Py_ssize_t* size
) noexcept:
    """Point to the bytes of an item; False: the item is neither bytes nor None."""
    cdef object item = <object>PyList_GET_ITEM(items, at)
    if type(item) is bytes:
        data[0] = <const uint8_t*>PyBytes_AS_STRING(item)
        size[0] = PyBytes_GET_SIZE(item)
        return True
    return item is None


cdef bytes encoded_headers(headers):
    headers = plain_headers(headers)
    cdef bytes encoded = PyBytes_FromStringAndSize(NULL, headers_size(headers))
    put_headers(<uint8_t*>PyBytes_AS_STRING(encoded), headers)
    return encoded
