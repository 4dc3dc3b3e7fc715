"""Decodes the records of batches into columns, in one pass and without an object per record.

``_record_columns.pyx`` has the compiled form: the same names, columns and errors.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.errors import ProtocolError
from kafkaclient.wire.column_buffers import BlobColumn, ColumnBuffers, HeaderColumn
from kafkaclient.wire.record_reader import MIN_RECORD_BYTES, read_records

if TYPE_CHECKING:
    from kafkaclient.types import Buffer

__all__ = ["RecordColumns"]

_MAX_DELTA = 2**31 - 1
_MAX_BYTES = 2**31 - 1
_UINT64 = 2**64
_INT64_MAX = 2**63 - 1


class _Blobs:
    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.data = bytearray()
        self.null_rows: list[int] = []

    def put(self, content: bytes | None) -> None:
        if content is None:
            self.null_rows.append(len(self.offsets) - 1)
        else:
            self.data += content
        self.offsets.append(len(self.data))

    def cut(self, rows: int) -> None:
        del self.offsets[rows + 1 :]
        del self.data[self.offsets[-1] :]
        while self.null_rows and self.null_rows[-1] >= rows:
            self.null_rows.pop()

    def column(self) -> BlobColumn:
        valid = None
        if self.null_rows:
            valid = bytearray(b"\xff") * ((len(self.offsets) + 6) // 8)
            for row in self.null_rows:
                valid[row >> 3] &= ~(1 << (row & 7))
        return BlobColumn(bytearray(self.offsets), self.data, valid, len(self.null_rows))


class RecordColumns:
    """Columns that grow batch by batch. ``headers``: whether to make a column of them as well;
    ``size_hint``: about how many bytes of records will come."""

    def __init__(self, headers: bool = False, size_hint: int = 0) -> None:
        del size_hint  # lists grow by themselves
        self._with_headers = headers
        self._offsets = array("q")
        self._timestamps = array("q")
        self._types = array("i")
        self._key, self._value = _Blobs(), _Blobs()
        self._starts = array("i", [0])
        self._names, self._contents = _Blobs(), _Blobs()

    @property
    def rows(self) -> int:
        return len(self._offsets)

    @property
    def nbytes(self) -> int:
        """Bytes of the records, about as they were encoded: empty ones count, too."""
        blobs = (self._key, self._value, self._names, self._contents)
        return sum(len(each.data) for each in blobs) + MIN_RECORD_BYTES * self.rows

    def append(
        self,
        records: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int,
        start: int,
        end: int,
    ) -> None:
        """Add those of a batch's ``count`` records (decompressed) that are at the offsets from
        ``start`` to ``end``, excluded. ``append_time`` is the timestamp of all of them, if the
        broker gave one (LogAppendTime), else -1.

        Raises :class:`~kafkaclient.errors.ProtocolError` for bytes that are not such records, of
        which then none is added; ValueError when columns would become larger than 2**31-1 bytes.
        """
        if count < 0 or count * MIN_RECORD_BYTES > len(records):
            raise ProtocolError(f"batch of {count} records in {len(records)} bytes")
        if self.nbytes + len(records) > _MAX_BYTES:
            raise ValueError("too much for columns with offsets of 32 bits")
        rows, entries = self.rows, len(self._names.offsets) - 1
        try:
            for record in read_records(bytes(records), count, base_timestamp):
                offset = _offset(base_offset, record.offset_delta)
                if not start <= offset < end:
                    continue
                stamped = append_time >= 0
                self._timestamps.append(append_time if stamped else _signed(record.timestamp))
                self._types.append(int(stamped))
                self._key.put(record.key)
                self._value.put(record.value)
                if self._with_headers:
                    for name, content in record.headers:
                        self._names.put(name.encode())
                        self._contents.put(content)
                    self._starts.append(len(self._names.offsets) - 1)
                self._offsets.append(offset)
        except ProtocolError:
            self._cut(rows, entries)
            raise

    def _cut(self, rows: int, entries: int) -> None:
        for numbers in (self._offsets, self._timestamps, self._types):
            del numbers[rows:]
        for blobs in (self._key, self._value):
            blobs.cut(rows)
        if self._with_headers:
            del self._starts[rows + 1 :]
            self._names.cut(entries)
            self._contents.cut(entries)

    def take(self) -> ColumnBuffers:
        """The columns; nothing can be added any more."""
        headers = None
        if self._with_headers:
            entries = len(self._names.offsets) - 1
            headers = HeaderColumn(
                bytearray(self._starts), entries, self._names.column(), self._contents.column()
            )
        return ColumnBuffers(
            self.rows,
            bytearray(self._offsets),
            bytearray(self._timestamps),
            bytearray(self._types),
            self._key.column(),
            self._value.column(),
            headers,
        )


def _offset(base: int, delta: int) -> int:
    if not 0 <= delta <= _MAX_DELTA or base > _INT64_MAX - delta:
        raise ProtocolError(f"record at {delta} from its batch's offset")
    return base + delta


def _signed(timestamp: int) -> int:
    """Within 64 bits, as Java's long."""
    timestamp %= _UINT64
    return timestamp - _UINT64 if timestamp > _INT64_MAX else timestamp


use_compiled(globals())
