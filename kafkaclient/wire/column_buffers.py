"""Columns of records as Arrow's buffers (arrow.apache.org/docs/format/Columnar.html)."""

from __future__ import annotations

from typing import NamedTuple


class BlobColumn(NamedTuple):
    """Byte strings: ``offsets`` (int32, one more than rows) into ``data``. The bits of ``valid``
    are 1 for values that are not null; ``valid`` is None without nulls."""

    offsets: bytearray
    data: bytearray
    valid: bytearray | None
    nulls: int


class HeaderColumn(NamedTuple):
    """Lists of headers: ``offsets`` (int32, one more than rows) into ``names`` and ``contents``,
    which have ``entries`` values each."""

    offsets: bytearray
    entries: int
    names: BlobColumn
    contents: BlobColumn


class ColumnBuffers(NamedTuple):
    """``rows`` records: ``offsets`` and ``timestamps`` (ms) int64, ``timestamp_types`` int32."""

    rows: int
    offsets: bytearray
    timestamps: bytearray
    timestamp_types: bytearray
    key: BlobColumn
    value: BlobColumn
    headers: HeaderColumn | None
