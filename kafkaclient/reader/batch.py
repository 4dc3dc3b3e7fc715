"""The batches that a read yields: records of one partition, as columns or as rows."""

from __future__ import annotations

from itertools import islice, pairwise, repeat
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.wire.arrow import (
    ArrowArray,
    ArrowField,
    array_capsule,
    schema_capsule,
    stream_capsule,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.types import Headers, TopicPartition
    from kafkaclient.wire.arrow import BlobColumn, ColumnBuffers, HeaderColumn


class FetchedRecord(NamedTuple):
    """One record. ``timestamp``: milliseconds since the epoch, -1 if it has none. Its type is 0 if
    the producer set it (CreateTime), 1 if the broker set it (LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    """Empty unless the read was made with ``headers=True``."""


_ENTRY = ArrowField("item", "+s", False, (ArrowField("key", "u"), ArrowField("value", "z", True)))
_COLUMNS = (
    ArrowField("key", "z", True),
    ArrowField("value", "z", True),
    ArrowField("offset", "l"),
    ArrowField("timestamp", "tsm:UTC"),
    ArrowField("timestampType", "i"),
)
_PLAIN = ArrowField("", "+s", False, _COLUMNS)
_WITH_HEADERS = ArrowField(
    "", "+s", False, (*_COLUMNS, ArrowField("headers", "+l", False, (_ENTRY,)))
)


class FetchedBatch:
    """Records of one partition, in the order of their offsets, which may have gaps.

    It implements the Arrow PyCapsule interface: ``pyarrow.record_batch(batch)`` and
    ``polars.DataFrame(batch)`` do not copy it. Its columns are ``key`` and ``value`` (binary),
    ``offset`` (int64), ``timestamp`` (timestamp[ms, UTC]), ``timestampType`` (int32, see
    :class:`FetchedRecord`), and with ``headers=True`` also ``headers`` (list<struct<key: string,
    value: binary>>). Iterating over it yields :class:`FetchedRecord`.
    """

    __slots__ = ("_buffers", "high_watermark", "next_offset", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        buffers: ColumnBuffers,
        next_offset: int,
        high_watermark: int,
    ) -> None:
        self._buffers = buffers
        self.topic_partition: TopicPartition = topic_partition
        self.next_offset: int = next_offset
        """The offset at which a read continues after this batch: behind its last record, and behind
        transaction markers and aborted records that follow."""
        self.high_watermark: int = high_watermark
        """The end of the partition at the time of the fetch."""

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition

    @property
    def base_offset(self) -> int:
        """The offset of the first record."""
        return memoryview(self._buffers.offsets).cast("q")[0]

    @property
    def nbytes(self) -> int:
        """The size of all columns in bytes."""
        _, *numbers, key, value, headers = self._buffers
        total = sum(map(len, numbers)) + _size(key) + _size(value)
        if headers is not None:
            total += len(headers.offsets) + _size(headers.names) + _size(headers.contents)
        return total

    @property
    def content_bytes(self) -> int:
        """The size of all keys and values in bytes."""
        return len(self._buffers.key.data) + len(self._buffers.value.data)

    def __len__(self) -> int:
        return self._buffers.rows

    def __repr__(self) -> str:
        return (
            f"<FetchedBatch {self.topic_partition}: {len(self)} records from offset "
            f"{self.base_offset}, {self.nbytes} B>"
        )

    def __iter__(self) -> Iterator[FetchedRecord]:
        topic, partition = self.topic_partition
        rows, offsets, timestamps, types, key, value, headers = self._buffers
        fields = zip(
            repeat(topic, rows),
            repeat(partition, rows),
            memoryview(offsets).cast("q").tolist(),
            memoryview(timestamps).cast("q").tolist(),
            memoryview(types).cast("i").tolist(),
            _cells(key),
            _cells(value),
            repeat(()) if headers is None or not headers.entries else _lists(headers),
            strict=False,
        )
        return map(tuple.__new__, repeat(FetchedRecord), fields)  # 3 times as fast as its calls

    def pairs(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """The keys and values of the records: faster than iterating over the records."""
        return zip(_cells(self._buffers.key), _cells(self._buffers.value), strict=True)

    def __arrow_c_schema__(self) -> object:
        return schema_capsule(self._field)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The requested schema is ignored, which the interface permits."""
        return schema_capsule(self._field), array_capsule(self._array())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return stream_capsule(self._field, [self._array()])

    @property
    def _field(self) -> ArrowField:
        return _PLAIN if self._buffers.headers is None else _WITH_HEADERS

    def _array(self) -> ArrowArray:
        rows, offsets, timestamps, types, key, value, headers = self._buffers
        columns = [
            _blobs(rows, key),
            _blobs(rows, value),
            *(ArrowArray(rows, 0, (None, numbers)) for numbers in (offsets, timestamps, types)),
        ]
        if headers is not None:
            fields = (_blobs(headers.entries, each) for each in (headers.names, headers.contents))
            entries = ArrowArray(headers.entries, 0, (None,), tuple(fields))
            columns.append(ArrowArray(rows, 0, (None, headers.offsets), (entries,)))
        return ArrowArray(rows, 0, (None,), tuple(columns))


def _blobs(rows: int, column: BlobColumn) -> ArrowArray:
    return ArrowArray(rows, column.nulls, (column.valid, column.offsets, column.data))


def _size(column: BlobColumn) -> int:
    return len(column.offsets) + len(column.data) + len(column.valid or b"")


def _cells(column: BlobColumn) -> Iterator[bytes | None]:
    bounds = memoryview(column.offsets).cast("i").tolist()
    rows = len(bounds) - 1
    if column.nulls == rows:
        return repeat(None, rows)
    cells = map(bytes(column.data).__getitem__, map(slice, bounds, islice(bounds, 1, None)))
    if column.valid is None:
        return cells
    return _with_nulls(cells, column.valid)


def _with_nulls(cells: Iterator[bytes], valid: bytearray) -> Iterator[bytes | None]:
    for row, cell in enumerate(cells):
        yield cell if valid[row >> 3] >> (row & 7) & 1 else None


def _lists(column: HeaderColumn) -> Iterator[Headers]:
    offsets = memoryview(column.offsets).cast("i")
    names = _cells(column.names)
    contents = _cells(column.contents)
    for start, end in pairwise(offsets):
        yield tuple(((next(names) or b"").decode(), next(contents)) for _ in range(start, end))
