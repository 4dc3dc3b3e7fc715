from __future__ import annotations

import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from kafkaclient.errors import InvalidRecordError
from kafkaclient.wire import record_buffer, records
from kafkaclient.wire.compression import CompressionType

MAX_TIMESTAMP = 2**63 - 1
LEADER_EPOCH = slice(12, 16)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

nullable_bytes = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=8), nullable_bytes), max_size=3)
timestamps = st.integers(0, 2**62) | st.integers(1_700_000_000_000, 1_700_000_100_000)
record_lists = st.lists(
    st.tuples(timestamps, nullable_bytes, nullable_bytes, headers), min_size=1, max_size=20
)


def build(rows, capacity=2**20):
    builder = records.BatchBuilder(capacity)
    for row in rows:
        assert builder.append(*row) > 0
    return builder


def reference(rows, codec=0, producer=(-1, -1, -1), transactional=False):
    """kafka-python's bytes, with the partition leader epoch that Java writes (-1, not 0).

    The field is outside the checksum, and brokers overwrite it.
    """
    builder = MemoryRecordsBuilder(2, codec, 2**24)
    for timestamp, key, value, row_headers in rows:
        builder.append(timestamp, key, value, list(row_headers))
    if producer[0] != -1:
        builder.set_producer_state(*producer, transactional)
    builder.close()
    data = bytearray(builder.buffer())
    data[LEADER_EPOCH] = b"\xff\xff\xff\xff"
    return bytes(data)


# --- bytes ------------------------------------------------------------------------------------


@given(rows=record_lists)
def test_batch_equals_the_reference_byte_for_byte(rows):
    builder = build(rows)
    builder.seal()
    assert bytes(builder.buffer()) == reference(rows)


@given(
    rows=record_lists,
    producer_id=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**15 - 1),
    sequence=st.integers(0, 2**31 - 1),
    transactional=st.booleans(),
)
def test_stamped_batch_equals_the_reference(rows, producer_id, epoch, sequence, transactional):
    builder = build(rows)
    builder.seal()
    builder.buffer()
    builder.stamp(1, 1, 1, True)  # an earlier attempt leaves nothing behind
    builder.stamp(producer_id, epoch, sequence, transactional)
    expected = reference(rows, producer=(producer_id, epoch, sequence), transactional=transactional)
    assert bytes(builder.buffer()) == expected


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
@given(rows=record_lists)
def test_compressed_batch_holds_the_reference_records(codec, rows):
    # The same value many times over compresses with every codec.
    rows = [*rows, (5, b"k", b"v" * 2000, [])]
    builder = build(rows)
    builder.seal(codec)
    builder.stamp(7, 1, 3)
    batch = builder.buffer()
    assert builder.codec == codec
    assert records.verify_crc(batch)
    plain, header = reference(rows), records.batch_header(batch)
    assert header == records.batch_header(plain)._replace(
        length=len(batch) - 12,
        crc=header.crc,
        attributes=codec,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
    )
    assert list(records.iter_records(batch)) == list(records.iter_records(plain))


@pytest.mark.parametrize("codec", ["none", "gzip"])  # what kafka-python decodes on its own
def test_the_reference_reads_our_batches(codec):
    rows = [(100 - i, b"key%d" % i, b"value" * i, [("h", b"x"), ("n", None)]) for i in range(50)]
    builder = build(rows)
    builder.seal(CODECS[codec])
    (batch,) = MemoryRecords(bytes(builder.buffer()))
    assert batch.validate_crc()
    read = [(r.timestamp, r.key, r.value, r.headers) for r in batch]
    assert read == rows


@given(rows=record_lists)
def test_records_read_back_as_written(rows):
    builder = build(rows)
    builder.seal()
    read = list(records.iter_records(builder.buffer()))
    assert [(r.timestamp, r.key, r.value, list(r.headers)) for r in read] == rows
    assert [r.offset_delta for r in read] == list(range(len(rows)))


@pytest.mark.parametrize("codec", list(CompressionType))
def test_sealing_in_steps_gives_the_same_bytes(codec):
    rows = [(n, b"key", b"value " * 20, ()) for n in range(50)]
    at_once, in_steps = build(rows), build(rows)
    at_once.seal(codec)
    in_steps.replace(codec, records.pack(codec, in_steps.close()))
    assert bytes(in_steps.buffer()) == bytes(at_once.buffer())
    assert in_steps.codec == at_once.codec == codec


def test_packing_what_gets_no_smaller_gains_nothing():
    builder = build([(0, None, b"x", ())])
    packed = records.pack(CompressionType.LZ4, builder.close())
    assert packed is None
    builder.replace(CompressionType.LZ4, packed)
    assert builder.codec is CompressionType.NONE


def test_a_new_stamp_is_written_with_its_checksum():
    builder = build([(50, None, b"a", ())])
    builder.seal()
    for producer in ((-1, -1, -1), (4000, 5, 77), (4000, 6, 0)):  # none, sent, under a raised epoch
        if producer[0] >= 0:
            builder.stamp(*producer)
        batch = builder.buffer()
        assert records.verify_crc(batch)
        header = records.batch_header(batch)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
        assert bytes(builder.buffer()) == bytes(batch)


def test_header_fields():
    builder = build([(50, None, b"a", ()), (90, None, b"b", ()), (10, None, b"c", ())])
    builder.seal()
    builder.stamp(4000, 5, 77, True)
    header = records.batch_header(builder.buffer())
    assert header._asdict() == {
        "base_offset": 0,
        "length": builder.size - 12,
        "partition_leader_epoch": -1,
        "magic": 2,
        "crc": crc32c.crc32c(bytes(builder.buffer())[21:]),
        "attributes": 0x10,
        "last_offset_delta": 2,
        "base_timestamp": 50,  # the first record's, although a later one is older
        "max_timestamp": 90,
        "producer_id": 4000,
        "producer_epoch": 5,
        "base_sequence": 77,
        "record_count": 3,
    }
    assert header.is_transactional
    assert header.codec == 0
    assert header.size == len(builder.buffer())


@pytest.mark.parametrize(
    ("first", "second"),
    [(0, MAX_TIMESTAMP), (MAX_TIMESTAMP, 0), (5, 4), (0, 2**31), (2**40, 2**40 - 2**33)],
)
def test_timestamp_deltas_of_any_size_and_sign(first, second):
    builder = build([(first, None, b"", ()), (second, None, b"", ())])
    builder.seal()
    assert [r.timestamp for r in records.iter_records(builder.buffer())] == [first, second]
    assert (builder.base_timestamp, builder.max_timestamp) == (first, max(first, second))


def test_a_level_reaches_the_codec():
    rows = [(i, b"%d" % (i * 7919), b"%d" % (i * i * 104729), ()) for i in range(2000)]
    sizes = []
    for level in (1, 9):
        builder = build(rows)
        builder.seal(CODECS["gzip"], level)
        sizes.append(len(builder.buffer()))
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_that_do_not_shrink_stay_plain(codec):
    builder = build([(1, None, b"x", ())])
    builder.seal(CODECS[codec])
    assert builder.codec == 0
    assert bytes(builder.buffer()) == reference([(1, None, b"x", ())])


# --- sizes ------------------------------------------------------------------------------------


def test_size_vectors_of_the_specification():
    assert records.BATCH_OVERHEAD == 61
    assert records.MAX_RECORD_OVERHEAD == 21
    assert records.record_size(0, 0, b"abc", b"12345") == 15
    assert records.record_size(63, 0, b"abc", b"12345") == 15
    assert records.record_size(64, 0, b"abc", b"12345") == 16
    builder = records.BatchBuilder(1000)
    assert builder.size == 61
    assert builder.append(1, None, b"12345") == 12
    assert builder.size == 73
    builder = records.BatchBuilder(2000)
    builder.append(1, None, b"x" * 1024)
    assert builder.size == 1094
    assert records.BATCH_OVERHEAD + records.record_size_upper_bound(None, b"x" * 1024) == 1110


@given(
    offset_delta=st.integers(0, 2**31 - 1),
    timestamp_delta=st.integers(-(2**62), 2**62),
    key=nullable_bytes,
    value=nullable_bytes,
    headers=headers,
)
def test_size_equals_the_reference(offset_delta, timestamp_delta, key, value, headers):
    size = records.record_size(offset_delta, timestamp_delta, key, value, headers)
    assert size == DefaultRecordBatchBuilder.size_in_bytes(
        offset_delta, timestamp_delta, key, value, headers
    )
    assert size <= records.record_size_upper_bound(key, value, headers)


@given(rows=record_lists)
def test_append_returns_the_record_size(rows):
    builder = records.BatchBuilder(2**20)
    for index, (timestamp, *fields) in enumerate(rows):
        before = builder.size
        added = builder.append(timestamp, *fields)
        assert added == records.record_size(index, timestamp - rows[0][0], *fields)
        assert builder.size == before + added
        assert builder.count == index + 1


@given(rows=record_lists, capacity=st.integers(0, 2000))
def test_what_does_not_fit_leaves_no_trace(rows, capacity):
    builder = records.BatchBuilder(capacity)
    fitted = []
    for row in rows:
        room = capacity - builder.size
        base = fitted[0][0] if fitted else row[0]
        needed = records.record_size(len(fitted), row[0] - base, *row[1:])
        state = (builder.size, builder.count, builder.base_timestamp, builder.max_timestamp)
        added = builder.append(*row)
        if needed > room:
            assert added == 0
            after = (builder.size, builder.count, builder.base_timestamp, builder.max_timestamp)
            assert after == state
        else:
            assert added == needed
            fitted.append(row)
    assert builder.capacity == capacity
    if fitted:
        builder.seal()
        assert bytes(builder.buffer()) == reference(fitted)


def test_a_record_may_fill_the_capacity_to_the_last_byte():
    assert records.BatchBuilder(73).append(1, None, b"12345") == 12
    assert records.BatchBuilder(72).append(1, None, b"12345") == 0


def test_reserve_makes_room_and_never_takes_it_away():
    builder = records.BatchBuilder(61)
    assert builder.append(1, None, b"12345") == 0
    builder.reserve(73)
    assert builder.append(1, None, b"12345") == 12
    builder.reserve(10)
    assert builder.capacity == 73
    with pytest.raises(ValueError, match=r"2\*\*31-1"):
        builder.reserve(2**31)


@pytest.mark.parametrize("capacity", [-1, 2**31, 2**63, 2**70])
def test_a_batch_cannot_be_larger_than_its_length_field(capacity):
    with pytest.raises(ValueError, match=r"between 0 and 2\*\*31-1"):
        records.BatchBuilder(capacity)


def test_memory_is_not_taken_before_it_is_needed():
    # A batch may grow far; a thousand quiet topics must not take what a busy one might.
    builders = [records.BatchBuilder(2**31 - 1) for _ in range(1000)]
    for builder in builders:
        assert builder.append(1, None, b"x") > 0


def test_large_records_grow_the_buffer():
    value = bytes(range(256)) * 4096
    builder = records.BatchBuilder(2**26)
    for _ in range(20):
        assert builder.append(1, value, value) > 2 * len(value)
    builder.seal()
    assert all(r.key == r.value == value for r in records.iter_records(builder.buffer()))


# --- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_like_arguments_are_alike(kind):
    builder = build([(1, kind(b"key"), kind(b"value"), [("h", kind(b"header"))])])
    builder.seal()
    expected = reference([(1, b"key", b"value", [("h", b"header")])])
    assert bytes(builder.buffer()) == expected
    size = records.record_size(0, 0, kind(b"key"), kind(b"value"), [("h", kind(b"header"))])
    assert size == len(expected) - 61


def test_memoryviews_count_bytes_not_elements():
    wide = memoryview(bytes(range(16))).cast("i")
    strided = memoryview(bytes(range(16)))[::2]
    builder = build([(1, wide, strided, ())])
    builder.seal()
    (record,) = records.iter_records(builder.buffer())
    assert (record.key, record.value) == (bytes(range(16)), bytes(range(0, 16, 2)))


@pytest.mark.parametrize("headers", [(), [], [("a", b"1")], (("a", b"1"), ("b", None))])
def test_headers_may_be_any_sequence(headers):
    builder = build([(1, None, None, headers)])
    builder.seal()
    (record,) = records.iter_records(builder.buffer())
    assert record.headers == tuple(headers)


BAD_ARGUMENTS = [
    ((1, "key", b""), TypeError, "key must be bytes, .* not str"),
    ((1, None, 5), TypeError, "value must be bytes, .* not int"),
    ((1, None, b"", [(b"h", b"")]), TypeError, "header key must be str, not bytes"),
    ((1, None, b"", [("h", "text")]), TypeError, "header value must be bytes, .* not str"),
    ((1, None, b"", None), TypeError, "None"),
    ((1, None, b"", [("h",)]), ValueError, "unpack"),
    ((1, None, b"", [("\ud800", b"")]), UnicodeEncodeError, "surrogates"),
    ((1.5, None, b""), TypeError, "timestamp must be int, not float"),
    ((None, None, b""), TypeError, "timestamp must be int, not NoneType"),
    ((-1, None, b""), InvalidRecordError, "timestamp must be .* not -1"),
    ((2**63, None, b""), InvalidRecordError, "timestamp must be .* not 9223372036854775808"),
    ((-(2**80), None, b""), InvalidRecordError, "timestamp must be"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_ARGUMENTS)
def test_bad_arguments_are_refused_and_leave_no_trace(arguments, error, message):
    builder = build([(7, b"k", b"v", ())])
    with pytest.raises(error, match=message):
        builder.append(*arguments)
    if arguments[0] == 1:
        with pytest.raises(error, match=message):
            records.record_size(0, 0, *arguments[1:])
        with pytest.raises(error, match=message):
            records.record_size_upper_bound(*arguments[1:])
    builder.seal()
    assert bytes(builder.buffer()) == reference([(7, b"k", b"v", ())])


# --- order of calls -------------------------------------------------------------------------------


def test_a_sealed_batch_takes_no_records():
    builder = build([(1, None, b"v", ())])
    assert not builder.sealed
    builder.seal()
    assert builder.sealed
    before = bytes(builder.buffer())
    with pytest.raises(RuntimeError, match="sealed"):
        builder.append(1, None, b"v")
    builder.reserve(2**20)
    with pytest.raises(RuntimeError, match="sealed"):
        builder.append(1, None, b"v")
    assert bytes(builder.buffer()) == before


def test_sealing_happens_once():
    builder = build([(1, None, b"v", ())])
    builder.seal()
    with pytest.raises(RuntimeError, match="already"):
        builder.seal()


def test_an_empty_batch_cannot_be_sealed_but_then_filled():
    builder = records.BatchBuilder(1000)
    assert (builder.base_timestamp, builder.max_timestamp) == (-1, -1)
    with pytest.raises(RuntimeError, match="without records"):
        builder.seal()
    assert builder.append(1, None, b"v") > 0


def test_an_unknown_codec_is_refused_before_anything_changes():
    builder = build([(1, None, b"v", ())])
    with pytest.raises(ValueError, match="9"):
        builder.seal(9)
    assert builder.append(1, None, b"v") > 0


def test_an_open_batch_has_no_sealed_bytes():
    builder = build([(1, None, b"v", ())])
    for use in (
        builder.buffer,
        lambda: builder.stamp(1, 1, 1),
        lambda: builder.codec,
    ):
        with pytest.raises(RuntimeError, match="not sealed"):
            use()


def test_the_buffer_is_the_batch_itself():
    builder = build([(1, None, b"v" * 100, ())])
    builder.seal()
    first = builder.buffer()
    builder.stamp(9, 8, 7)
    second = builder.buffer()
    assert first.obj is second.obj
    assert struct.unpack_from(">qhi", first, 43) == (9, 8, 7)
    del builder
    assert records.verify_crc(first)


def test_counts_survive_sealing():
    builder = build([(i, None, b"v" * 100, ()) for i in range(10)])
    size = builder.size
    builder.seal(CODECS["zstd"])
    assert (builder.count, builder.size, builder.max_timestamp) == (10, size, 9)
    assert len(builder.buffer()) < size
    assert repr(builder).endswith(f"sealed to {len(builder.buffer())} B>")


# --- plain headers ----------------------------------------------------------------------------

ODD_HEADERS = [
    None,
    5,
    {"a": b"1"},
    iter(()),
    [["a", b"1"]],
    [("a",)],
    [("a", b"1", b"2")],
    [(b"a", b"1")],
    [("a", "1")],
    [("a", bytearray(b"1"))],
    [("\ud800", b"1")],
    [None],
]


@given(sent=headers | headers.map(tuple) | st.sampled_from(ODD_HEADERS))
def test_the_size_of_plain_headers(sent):
    """-1 for headers that are not plain."""
    plain = not any(sent is odd for odd in ODD_HEADERS)
    expected = record_buffer.fields_size(None, None, sent) - 2 if plain else -1
    assert record_buffer.headers_size(sent) == expected
