# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records and their stream; ``records.pyi`` has the docstrings.

The columns are this package's own (``record_columns.pyx``), so offsets in them are not checked.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

import asyncio
from time import perf_counter
from types import GenericAlias

from kafkaclient.errors import safe_repr
from kafkaclient.types import TopicPartition

cdef extern from "Python.h":
    ctypedef PyObject* (*iternextfunc)(PyObject*) except? NULL
    ctypedef struct PyTypeObject:
        iternextfunc tp_iternext
    void PyErr_SetObject(object type, object value) noexcept

__all__ = ["Record", "RecordStream", "Rows"]

cdef int TURN = 128  # records between two looks at the clock
cdef double TURN_S = 0.01


@cython.final
@cython.freelist(32)
cdef class Record:
    cdef readonly object topic
    cdef readonly int32_t partition
    cdef readonly int32_t timestamp_type
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef object _tracker
    cdef Record _raw  # None: this is the record as it was fetched

    def __init__(
        self,
        topic,
        partition,
        offset,
        timestamp=-1,
        timestamp_type=0,
        key=None,
        value=None,
        headers=(),
        tracker=None,
    ):
        self.topic, self.partition, self.offset = topic, partition, offset
        self.timestamp, self.timestamp_type = timestamp, timestamp_type
        self.key, self.value, self.headers = key, value, headers
        self._tracker = tracker

    @classmethod
    def __class_getitem__(cls, types):
        return GenericAlias(cls, types)

    @property
    def topic_partition(self):
        return TopicPartition(self.topic, self.partition)

    @property
    def raw(self):
        return self if self._raw is None else self._raw

    def deserialized(self, key, value):
        cdef Record record = Record.__new__(Record)
        record.topic, record.partition = self.topic, self.partition
        record.offset, record.timestamp = self.offset, self.timestamp
        record.timestamp_type = self.timestamp_type
        record.key, record.value, record.headers = key, value, self.headers
        record._tracker, record._raw = self._tracker, self
        return record

    def done(self):
        if self._tracker is not None:
            self._tracker.done(self.offset)

    cdef tuple _fields(self):
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
        )

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == (<Record>other)._fields()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self):
        return Record, self._fields()

    def __repr__(self):
        return (
            f"<Record {self.topic}-{self.partition} offset {self.offset}, "
            f"key {_short(self.key)}, value {_short(self.value)}>"
        )


def _short(data):
    if isinstance(data, bytes):
        return repr(data) if len(data) <= 40 else f"{data[:40]!r}... ({len(data)} B)"
    text = safe_repr(data)
    return text if len(text) <= 100 else f"{text[:100]}..."


@cython.final
cdef class Column:
    """A column of byte strings."""

    cdef object _kept  # the memory that the pointers point to
    cdef const int32_t* _bounds
    cdef const char* _data
    cdef const uint8_t* _valid

    def __cinit__(self, column):
        self._kept = column
        self._bounds = <const int32_t*>PyByteArray_AS_STRING(column.offsets)
        self._data = PyByteArray_AS_STRING(column.data)
        self._valid = NULL
        if column.valid is not None:
            self._valid = <const uint8_t*>PyByteArray_AS_STRING(column.valid)

    cdef inline object cell(self, Py_ssize_t row):
        cdef int32_t start
        if self._valid != NULL and not self._valid[row >> 3] >> (row & 7) & 1:
            return None
        start = self._bounds[row]
        return PyBytes_FromStringAndSize(self._data + start, self._bounds[row + 1] - start)


@cython.final
cdef class Rows:
    cdef readonly object batch
    cdef object _buffers
    cdef object _tracker
    cdef dict _unfinished
    cdef object _topic
    cdef int32_t _partition
    cdef const int64_t* _offsets
    cdef const int64_t* _timestamps
    cdef const int32_t* _types
    cdef Column _key
    cdef Column _value
    cdef Column _names
    cdef Column _contents
    cdef const int32_t* _starts
    cdef Py_ssize_t _rows
    cdef Py_ssize_t _first  # in hand are the rows from here
    cdef Py_ssize_t _next  # to here, excluded
    cdef Py_ssize_t _end
    cdef readonly bint is_cut

    def __init__(self, batch, tracker=None, unfinished=None):
        buffers = batch._buffers
        self.batch, self._buffers, self._tracker = batch, buffers, tracker
        self._unfinished = unfinished
        self._topic, self._partition = batch.topic_partition
        self._offsets = <const int64_t*>PyByteArray_AS_STRING(buffers.offsets)
        self._timestamps = <const int64_t*>PyByteArray_AS_STRING(buffers.timestamps)
        self._types = <const int32_t*>PyByteArray_AS_STRING(buffers.timestamp_types)
        self._key, self._value = Column(buffers.key), Column(buffers.value)
        headers = buffers.headers
        self._starts = NULL
        if headers is not None and headers.entries:
            self._starts = <const int32_t*>PyByteArray_AS_STRING(headers.offsets)
            self._names, self._contents = Column(headers.names), Column(headers.contents)
        self._first = self._next = 0
        self._rows = self._end = buffers.rows

    cdef int64_t _offset_at(self, Py_ssize_t row):
        return self._offsets[row] if row < self._rows else <int64_t>self.batch.next_offset

    @property
    def finished(self):
        return self._offset_at(self._first)

    @property
    def position(self):
        return self._offset_at(self._next)

    @property
    def has_hand(self):
        return self._first < self._next

    @property
    def is_tracked(self):
        return self._unfinished is not None

    @property
    def is_untouched(self):
        return self._next == 0

    @property
    def left(self):
        return self._end - self._next

    cdef Record _record(self, Py_ssize_t row):
        cdef Record record = Record.__new__(Record)
        record.topic, record.partition = self._topic, self._partition
        record.offset, record.timestamp = self._offsets[row], self._timestamps[row]
        record.timestamp_type = self._types[row]
        record.key, record.value = self._key.cell(row), self._value.cell(row)
        record.headers = () if self._starts == NULL else self._headers(row)
        record._tracker = self._tracker
        return record

    cpdef Record next(self):
        cdef Py_ssize_t row = self._next
        cdef Record record
        self._first = row
        if row >= self._end:
            return None
        self._next = row + 1  # first: in another thread than the consumer's, cut() may come between
        record = self._record(row)
        if self._unfinished is not None:
            self._unfinished[record.offset] = None
            self._first = self._next
        return record

    def take(self, Py_ssize_t most):
        cdef Py_ssize_t row
        cdef Py_ssize_t end = self._next + min(most, max(0, self._end - self._next))
        taken = [self._record(row) for row in range(self._next, end)]
        self._next = end
        return taken

    cdef tuple _headers(self, Py_ssize_t row):
        cdef Py_ssize_t entry
        return tuple(
            [
                ((<bytes>self._names.cell(entry)).decode(), self._contents.cell(entry))
                for entry in range(self._starts[row], self._starts[row + 1])
            ]
        )

    def take_all(self):
        self._first, self._next = self._next, self._end

    def finish(self):
        self._first = self._next

    def finish_record(self, int64_t offset):
        if self._first + 1 == self._next and self._offsets[self._first] == offset:
            self._first = self._next

    def step_back(self):
        self._next = self._first

    def give_back(self):
        if self.is_cut:
            self._end = self._next - 1
        self._next -= 1
        self._first = min(self._first, self._next)
        if self._unfinished is not None:
            self._unfinished.pop(self._offsets[self._next], None)

    def cut(self):
        self._end, self.is_cut = self._next, True


cdef class RecordStream


@cython.final
@cython.freelist(8)
cdef class Ready:
    """An awaitable that takes the next record when it is awaited, not before: what is never awaited
    takes none."""

    cdef RecordStream _stream

    def __await__(self):
        return self if self._stream.has_row() else self._stream._wait().__await__()

    def __iter__(self):
        return self

    def __next__(self):
        """What awaits it calls ``_returned`` instead."""
        raise StopIteration(self._stream._rows.next())


cdef PyObject* _returned(PyObject* ready) except? NULL:
    """``Ready.__next__`` without the traceback that ``raise`` makes, which takes longer than the
    record."""
    PyErr_SetObject(StopIteration, (<Ready>ready)._stream._rows.next())
    return NULL


(<PyTypeObject*>Ready).tp_iternext = _returned


@cython.final
cdef class RecordStream:
    cdef Rows _rows
    cdef object _refill
    cdef int _left
    cdef double _turn_began

    def __init__(self, rows, refill):
        self._rows, self._refill = rows, refill
        self._left, self._turn_began = TURN, perf_counter()

    def __aiter__(self):
        return self

    cdef bint has_row(self):
        return self._rows is not None and self._rows._next < self._rows._end

    @property
    def rows(self):
        return self._rows

    def end(self):
        self._rows = None

    def __anext__(self):
        cdef Ready ready
        if not self.has_row():
            return self._wait()
        self._left -= 1
        if self._left <= 0:
            self._left = TURN
            if perf_counter() - self._turn_began > TURN_S:
                return self._after_others()
        ready = Ready.__new__(Ready)
        ready._stream = self
        return ready

    async def _after_others(self):
        await asyncio.sleep(0)
        self._turn_began = perf_counter()
        record = None if self._rows is None else self._rows.next()
        return await self._wait() if record is None else record

    async def _wait(self):
        while True:
            self._rows = await self._refill()
            if self._rows is None:
                raise StopAsyncIteration
            self._left, self._turn_began = TURN, perf_counter()
            record = self._rows.next()
            if record is not None:
                return record
