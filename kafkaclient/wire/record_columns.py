"""Decodes the records of batches into columns.

``_record_columns.pyx`` has the compiled form: the same names, columns and errors, in one pass and
without an object per record.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.errors import ProtocolError
from kafkaclient.wire.column_buffers import BlobColumn, ColumnBuffers, HeaderColumn
from kafkaclient.wire.record_reader import MIN_RECORD_BYTES, Record, read_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.types import Buffer

__all__ = ["RecordColumns"]

_MAX_DELTA = 2**31 - 1
_MAX_BYTES = 2**31 - 1
_UINT64 = 2**64
_INT64_MAX = 2**63 - 1


class RecordColumns:
    """Columns of records, to which batches are added.

    ``headers``: whether there is a column of headers. ``size_hint``: about how many bytes of
    records will be added.
    """

    def __init__(self, headers: bool = False, size_hint: int = 0) -> None:
        del size_hint  # lists grow by themselves
        self._with_headers = headers
        self._rows: list[tuple[int, int, int, Record]] = []  # offset, timestamp, its type, record
        self._content_bytes = 0

    @property
    def rows(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """The approximate size of the encoded records; an empty record counts as 7 bytes."""
        return self._content_bytes + MIN_RECORD_BYTES * self.rows

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
        """Add the records of a batch that are at the offsets from ``start`` to ``end``, excluded.

        ``records`` has the ``count`` records of the batch, decompressed. ``append_time`` is the
        timestamp of all records if the broker set it (LogAppendTime), otherwise -1.

        Raises :class:`~kafkaclient.errors.ProtocolError` for bytes that are not such records; then
        no record is added. Raises ValueError if the columns would exceed 2**31-1 bytes.
        """
        if count < 0 or count * MIN_RECORD_BYTES > len(records):
            raise ProtocolError(f"batch of {count} records in {len(records)} bytes")
        if self.nbytes + len(records) > _MAX_BYTES:
            raise ValueError("too much for columns with offsets of 32 bits")
        stamped = append_time >= 0
        added = []
        size = 0
        for record in read_records(bytes(records), count, base_timestamp):
            offset = _offset(base_offset, record.offset_delta)
            if start <= offset < end:
                timestamp = append_time if stamped else _signed(record.timestamp)
                added.append((offset, timestamp, int(stamped), record))
                size += len(record.key or b"") + len(record.value or b"")
                for name, content in record.headers if self._with_headers else ():
                    size += len(name.encode()) + len(content or b"")
        self._rows += added
        self._content_bytes += size

    def take(self) -> ColumnBuffers:
        """The columns; no batch can be added afterwards."""
        records = [row[3] for row in self._rows]
        headers = None
        if self._with_headers:
            entries = [entry for record in records for entry in record.headers]
            headers = HeaderColumn(
                _offsets([len(record.headers) for record in records]),
                len(entries),
                _blobs([name.encode() for name, _ in entries]),
                _blobs([content for _, content in entries]),
            )
        return ColumnBuffers(
            self.rows,
            bytearray(array("q", [row[0] for row in self._rows])),
            bytearray(array("q", [row[1] for row in self._rows])),
            bytearray(array("i", [row[2] for row in self._rows])),
            _blobs([record.key for record in records]),
            _blobs([record.value for record in records]),
            headers,
        )


def _blobs(contents: Sequence[bytes | None]) -> BlobColumn:
    nulls = [row for row, content in enumerate(contents) if content is None]
    valid = None
    if nulls:
        valid = bytearray(b"\xff") * ((len(contents) + 7) // 8)
        for row in nulls:
            valid[row >> 3] &= ~(1 << (row & 7))
    plain = [content or b"" for content in contents]
    return BlobColumn(
        _offsets([len(content) for content in plain]), bytearray().join(plain), valid, len(nulls)
    )


def _offsets(lengths: Sequence[int]) -> bytearray:
    return bytearray(array("i", accumulate(lengths, initial=0)))


def _offset(base: int, delta: int) -> int:
    if not 0 <= delta <= _MAX_DELTA or base > _INT64_MAX - delta:
        raise ProtocolError(f"record at {delta} from its batch's offset")
    return base + delta


def _signed(timestamp: int) -> int:
    """The timestamp within 64 bits, as a Java long."""
    timestamp %= _UINT64
    return timestamp - _UINT64 if timestamp > _INT64_MAX else timestamp


use_compiled(globals())
