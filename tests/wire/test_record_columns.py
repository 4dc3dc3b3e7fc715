"""Records as columns, against the plain reader of records."""

from __future__ import annotations

import struct
from contextlib import suppress
from mmap import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.record_columns import RecordColumns
from kafkaclient.wire.record_reader import Record, read_records
from kafkaclient.wire.records import BATCH_OVERHEAD, BatchBuilder

ALL = (0, 2**62)
blobs = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=6), blobs), max_size=3)
rows = st.lists(st.tuples(st.integers(0, 2**40), blobs, blobs, headers), min_size=1, max_size=30)


def encoded(given_rows) -> bytes:
    builder = BatchBuilder(2**20)
    for row in given_rows:
        builder.append(*row)
    return bytes(builder.close()[BATCH_OVERHEAD:])


def blob_items(column, count):
    offsets = struct.unpack(f"={count + 1}i", column.offsets)
    valid = [column.valid is None or column.valid[n >> 3] >> (n & 7) & 1 for n in range(count)]
    assert column.nulls == valid.count(0)
    assert offsets[-1] == len(column.data)
    return [
        bytes(column.data[offsets[n] : offsets[n + 1]]) if valid[n] else None for n in range(count)
    ]


def items(columns) -> list[tuple]:
    """(offset, timestamp, type, key, value, headers) per row."""
    count = columns.rows
    lists = [()] * count
    if columns.headers is not None:
        starts = struct.unpack(f"={count + 1}i", columns.headers.offsets)
        names = blob_items(columns.headers.names, columns.headers.entries)
        contents = blob_items(columns.headers.contents, columns.headers.entries)
        pairs = [(name.decode(), content) for name, content in zip(names, contents, strict=True)]
        lists = [tuple(pairs[starts[n] : starts[n + 1]]) for n in range(count)]
    return list(
        zip(
            struct.unpack(f"={count}q", columns.offsets),
            struct.unpack(f"={count}q", columns.timestamps),
            struct.unpack(f"={count}i", columns.timestamp_types),
            blob_items(columns.key, count),
            blob_items(columns.value, count),
            lists,
            strict=True,
        )
    )


def expected(records: list[Record], base: int, start: int, end: int, with_headers: bool):
    return [
        (
            base + r.offset_delta,
            r.timestamp,
            0,
            r.key,
            r.value,
            r.headers if with_headers else (),
        )
        for r in records
        if start <= base + r.offset_delta < end
    ]


@given(
    batches=st.lists(rows, min_size=1, max_size=4),
    window=st.tuples(st.integers(0, 60), st.integers(0, 120)),
    with_headers=st.booleans(),
    hint=st.sampled_from([0, 1, 5000]),
)
def test_what_was_built_is_what_is_read(batches, window, with_headers, hint):
    columns = RecordColumns(with_headers, hint)
    start, end = window[0], window[0] + window[1]
    want, base = [], 0
    for batch in batches:
        data, first = encoded(batch), batch[0][0]
        columns.append(memoryview(data), len(batch), base, first, -1, start, end)
        want += expected(
            list(read_records(data, len(batch), first)), base, start, end, with_headers
        )
        base += len(batch)
    assert columns.rows == len(want)
    least = sum(7 + len(row[3] or b"") + len(row[4] or b"") for row in want)
    assert least <= columns.nbytes <= least + 100 * len(want)
    assert with_headers or columns.nbytes == least
    assert items(columns.take()) == want


def test_a_brokers_time_is_that_of_all_records():
    data = encoded([(10, b"k", b"v", ()), (20, None, None, ())])
    columns = RecordColumns()
    columns.append(data, 2, 100, 10, 777, *ALL)
    assert items(columns.take()) == [(100, 777, 1, b"k", b"v", ()), (101, 777, 1, None, None, ())]


def test_times_before_their_batchs_and_gaps():
    """As compaction leaves them (KIP-534 moves the base timestamp on)."""
    body = b"\x0c\x00\x13\x08\x01\x01\x00" + b"\x0c\x00\x00\x14\x01\x01\x00"
    columns = RecordColumns()
    columns.append(body, 2, 1000, 50, -1, *ALL)
    assert [row[:2] for row in items(columns.take())] == [(1004, 40), (1010, 50)]


def test_nothing_at_all():
    columns = RecordColumns(True).take()
    assert (columns.rows, items(columns)) == (0, [])
    assert len(columns.key.offsets) == len(columns.headers.offsets) == 4


@given(
    good=rows,
    bad=st.binary(max_size=60),
    cut=st.integers(0, 5),
    count=st.integers(-1, 5),
    with_headers=st.booleans(),
)
def test_bad_bytes_add_nothing(good, bad, cut, count, with_headers):
    data = encoded(good)
    columns = RecordColumns(with_headers)
    columns.append(data, len(good), 0, good[0][0], -1, *ALL)
    for body, number in ((bad, count), (data[:-1], len(good)), (data + bad, len(good))):
        with suppress(ProtocolError):
            columns.append(body, number, 5000, 0, -1, 0, 5000 + cut)
    columns.append(data, len(good), 100_000, good[0][0], -1, *ALL)
    taken = columns.take()
    assert items(taken)[: len(good)] == expected(
        list(read_records(data, len(good), good[0][0])), 0, *ALL, with_headers
    )


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", -1),
        (b"", 1),
        (bytes(70), 2**31 - 1),
        (bytes(7), 1),
        (b"\x0d" + bytes(9), 1),
        (b"\x7e" + bytes(9), 1),
        (b"\x0c\x00\x00\x00\x01\x01\x00extra", 1),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1),
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1),
        (b"\x0c\x00\x00\x00\x01\x01\x40", 1),
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1),
        (b"\x0c\x00\x00\x00\x40\x01\x00", 1),
        (b"\x0c\x00\x00\x01\x01\x01\x00", 1),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1),
        (b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1),
        (b"\x20\x00" + b"\xff" * 9 + b"\x02\x00\x01\x01\x00", 1),
        (b"\xff" * 20, 1),
    ],
)
def test_malformed_records(body, count):
    for with_headers in (False, True):
        with pytest.raises(ProtocolError):
            RecordColumns(with_headers).append(body, count, 0, 0, -1, *ALL)


def test_columns_stay_within_offsets_of_32_bits():
    columns = RecordColumns()
    zeros = mmap(-1, 2**31)  # pages that nobody touches take no memory
    with pytest.raises(ValueError, match="32 bits"):
        columns.append(zeros, 0, 0, 0, -1, *ALL)
