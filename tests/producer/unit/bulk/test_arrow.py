"""Arrow columns: every layout, slices and chunks; what is refused; malformed buffers."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import (
    BufferFullError,
    ConfigError,
    InvalidRecordError,
    PartitionOutOfRangeError,
    RecordTooLargeError,
)
from kafkaclient.producer.batches.record import RawRecord
from kafkaclient.producer.bulk import arrow as columns
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import run_virtual, virtual_time
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from kafkaclient.testing.fake import FakeCluster
    from tests.producer.support import StartProducer

NOW = 12_500

LISTS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MAPS = pa.map_(pa.string(), pa.binary())


def cluster(partitions: int = 3) -> FakeCluster:
    return one_topic(partitions, brokers=1)


async def sent(data: Any, partitions: int = 3, **options: Any) -> list[list[Any]]:
    """By partition, what the rows became: (timestamp, key, value, headers)."""
    fake = cluster(partitions)
    async with Producer(
        fake.bootstrap, dialer=fake, wall_clock=lambda: NOW / 1000, batch_size=2000
    ) as producer:
        delivery = await producer.send_arrow("t", data, **options)
        metadata = await delivery
        logs = [fake.log("t", p) for p in range(partitions)]
        assert metadata.records == delivery.records == sum(map(len, logs))
    return [[(r.timestamp, r.key, r.value, r.headers) for r in log] for log in logs]


def only(data: Any, **options: Any) -> list[Any]:
    (log,) = run_virtual(sent(data, 1, **options))
    return log


def values_of(array: Any, **options: Any) -> list[Any]:
    """What arrives of a column of values, alone and behind others in its buffers."""
    whole = [value for _, _, value, _ in only(pa.record_batch({"value": array}), **options)]
    sliced = pa.record_batch({"value": pa.concat_arrays([array, array])[len(array) :]})
    assert [value for _, _, value, _ in only(sliced, **options)] == whole
    return whole


# --- every layout -------------------------------------------------------------------------------

TEXTS = ["", None, "a", "ünïcode", "x" * 12, "y" * 13, "z" * 300, None]
ENCODED = [None if text is None else text.encode() for text in TEXTS]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
    ],
    ids=str,
)
def test_layouts_of_bytes_and_text(kind: Any) -> None:
    assert values_of(pa.array(TEXTS if "string" in str(kind) else ENCODED, kind)) == ENCODED
    no_nulls = [item for item in ENCODED if item is not None]
    assert values_of(pa.array(no_nulls, pa.binary()).cast(kind)) == no_nulls
    assert values_of(pa.array([None] * 5, kind)) == [None] * 5


@pytest.mark.parametrize(
    "words", [pa.string(), pa.binary(), pa.large_string(), pa.string_view()], ids=str
)
def test_dictionaries(words: Any) -> None:
    indices = pa.array([0, None, 2, 1, 0], pa.int8())
    dictionary = pa.array(["a", "b", "c" * 20]).cast(words)
    array = pa.DictionaryArray.from_arrays(indices, dictionary)
    assert values_of(array) == [b"a", None, b"c" * 20, b"b", b"a"]


def test_fixed_size_bytes_and_nulls() -> None:
    array = pa.array([b"abcd", None, b"efgh"], pa.binary(4))
    assert values_of(array) == [b"abcd", None, b"efgh"]
    assert values_of(pa.array([b"", b""], pa.binary(0))) == [b"", b""]
    assert values_of(pa.nulls(3)) == [None] * 3


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps(unit: str, zone: str | None) -> None:
    moments = [datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC), None, datetime(1970, 1, 1, tzinfo=UTC)]
    array = pa.array(moments, pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, zone))
    data = pa.table({"value": ENCODED[:3], "timestamp": array})
    times = [timestamp for timestamp, *_ in only(data)]
    assert times == [1_714_979_289_000, NOW, 0]
    assert [t for t, *_ in only(data, timestamp_ms=7)] == [1_714_979_289_000, 7, 0]


def test_timestamps_as_numbers() -> None:
    data = pa.table({"value": ENCODED[:3], "timestamp": pa.array([5, None, 2**63 - 1])})
    assert [timestamp for timestamp, *_ in only(data)] == [5, NOW, 2**63 - 1]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint64()], ids=str)
def test_partitions(kind: Any) -> None:
    data = pa.table({"value": ENCODED, "partition": pa.array([0, 1, 2, None, 2, 1, None, 0], kind)})
    logs = run_virtual(sent(data, partition=1))
    expected = [[0, 7], [1, 3, 5, 6], [2, 4]]
    assert [[v for _, _, v, _ in log] for log in logs] == [
        [ENCODED[n] for n in p] for p in expected
    ]


PAIRS = [[("a", b"1"), ("b", None)], None, [], [("a", b"x" * 70), ("a", b""), ("ü", b"2")]]
HEADERS = [tuple(pairs or ()) for pairs in PAIRS]


@pytest.mark.parametrize(
    "kind",
    [
        LISTS,
        MAPS,
        pa.large_list(pa.struct([("value", pa.binary_view()), ("key", pa.large_string())])),
        pa.map_(pa.string_view(), pa.string()),
        pa.list_(
            pa.struct([("key", pa.dictionary(pa.int8(), pa.string())), ("value", pa.binary())])
        ),
    ],
    ids=str,
)
def test_headers(kind: Any) -> None:
    as_map = pa.types.is_map(kind)
    plain = kind
    if not as_map and pa.types.is_dictionary(kind.value_type.field("key").type):
        plain = LISTS  # from which Arrow does not make it by itself
    items = [
        pairs if pairs is None or as_map else [{"key": k, "value": v} for k, v in pairs]
        for pairs in PAIRS
    ]
    array = pa.array(items, plain)
    if plain is not kind:
        names = array.values.field("key").dictionary_encode()
        names = names.cast(pa.dictionary(pa.int8(), pa.string()))
        entries = pa.StructArray.from_arrays([names, array.values.field("value")], ["key", "value"])
        array = pa.ListArray.from_arrays(array.offsets, entries, mask=array.is_null())
    for first in range(4):
        data = pa.record_batch({"value": ENCODED[:4], "headers": array})[first:]
        assert [headers for *_, headers in only(data)] == HEADERS[first:]


# --- the same as one by one ---------------------------------------------------------------------

blobs = st.none() | st.binary(max_size=9) | st.sampled_from([bytes(700), bytes(3000)])
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2
)
rows = st.lists(
    st.tuples(
        blobs,
        st.none() | st.binary(max_size=3),
        headers,
        st.none() | st.integers(0, 2**40),
        st.none() | st.integers(0, 3),
    ),
    max_size=60,
)
blob_kinds = st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()])


@given(rows, blob_kinds, blob_kinds, st.lists(st.integers(0, 60), max_size=4), st.integers(0, 9))
def test_it_is_as_if_sent_one_by_one(
    records: Any, value_kind: Any, key_kind: Any, cuts: list[int], skipped: int
) -> None:
    """Whatever the chunks, and whatever of the buffers is not theirs."""
    names = ["value", "key", "headers", "timestamp", "partition"]
    kinds = [value_kind, key_kind, MAPS, pa.int64(), pa.int16()]
    fields = zip(*records, strict=True) if records else [()] * 5
    arrays = [pa.array(list(f), kind) for f, kind in zip(fields, kinds, strict=True)]
    whole = pa.record_batch(arrays, names)
    edges = [0, *sorted(min(cut, len(records)) for cut in cuts), len(records)]
    chunks = [whole[a:b] for a, b in pairwise(edges)]
    data = pa.Table.from_batches(chunks, whole.schema)[skipped:]

    async def single() -> list[list[Any]]:
        fake = cluster(4)
        async with Producer(fake.bootstrap, dialer=fake, wall_clock=lambda: NOW / 1000) as producer:
            for value, key, pairs, timestamp, partition in records[skipped:]:
                await producer.send(
                    "t", value, key, partition=partition, timestamp_ms=timestamp, headers=pairs
                )
        logs = [fake.log("t", p) for p in range(4)]
        return [[(r.timestamp, r.key, r.value, r.headers) for r in log] for log in logs]

    many, one_by_one = run_virtual(sent(data, 4)), run_virtual(single())
    for a, b in zip(many, one_by_one, strict=True):
        assert [r for r in a if r[1] is not None] == [r for r in b if r[1] is not None]
    assert sorted(map(repr, chain(*many))) == sorted(map(repr, chain(*one_by_one)))


def test_chunks_are_gone_through_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_PIECE", 7)
    items = [b"%d" % n for n in range(100)]
    data = pa.record_batch(
        {
            "value": pa.array(items).dictionary_encode(),
            "headers": pa.array([[("n", item)] for item in items], MAPS),
        }
    )
    assert [(v, dict(h)) for _, _, v, h in only(data[3:])] == [(i, {"n": i}) for i in items[3:]]


def test_an_empty_slice_in_the_middle_is_no_end() -> None:
    """Arrow's own validation finds fault with one of a column of views."""
    keys = pa.array([None] * 8, pa.binary_view())
    batch = pa.record_batch({"value": pa.array([b"v"] * 8), "key": keys})
    table = pa.Table.from_batches([batch.slice(0, 1), batch.slice(1, 0), batch.slice(1, 7)])
    assert len(only(table)) == 8


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.string_view()])
def test_long_words_of_a_dictionary_make_small_pieces(
    monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    """However often a word is repeated, few of its copies are there at a time."""
    monkeypatch.setattr(columns, "_DECODED", 100)
    words = pa.array(["a" * 30, "b", None]).cast(kind)
    indices = pa.array([0, 1, 2, None] * 5, pa.int8())
    data = pa.record_batch({"value": pa.DictionaryArray.from_arrays(indices, words)})
    pieces = [(start, len(rows)) for start, rows in columns._pieces(data, 0, RawRecord("t"))]
    assert pieces == [(n, min(3, 20 - n)) for n in range(0, 20, 3)]
    assert [v for _, _, v, _ in only(data)] == [b"a" * 30, b"b", None, None] * 5


# --- sources ------------------------------------------------------------------------------------


def test_what_has_the_arrow_interfaces() -> None:
    class Stream:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return batch.__arrow_c_stream__(requested_schema)

    class Array:
        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            return batch.__arrow_c_array__(requested_schema)

    batch = pa.record_batch({"key": ["k", None], "value": [b"v", b"w"]})
    table = pa.Table.from_batches([batch])
    frame = pd.DataFrame({"key": ["k", None], "value": [b"v", b"w"]})
    for data in (batch, table, table.to_reader(), Stream(), Array(), frame):
        assert [(k, v) for _, k, v, _ in only(data)] == [(b"k", b"v"), (None, b"w")]
    assert only(table[:0]) == []


@virtual_time
async def test_a_stream_is_read_as_it_is_sent(producing: StartProducer) -> None:
    """A chunk is asked for when the one before it is in the buffer; memory is bounded."""
    fake = cluster(1)
    fake.round_trip_s = 0.01
    asked = 0

    def chunks() -> Any:
        nonlocal asked
        for n in range(50):
            asked += 1
            yield pa.record_batch({"value": [b"%d " % n + bytes(998)] * 40})

    schema = pa.schema({"value": pa.binary()})
    async with producing(fake, buffer_memory=65_536, max_block_ms=1000) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        reader = pa.RecordBatchReader.from_batches(schema, chunks())
        with pytest.raises(BufferFullError) as caught:
            await producer.send_arrow("t", reader)
        assert asked <= 3
        fake.resume_broker(0)
        await caught.value.delivery
        metadata = await (await producer.send_arrow("t", reader))
        assert (asked, metadata.records) == (50, (50 - 2) * 40)


# --- bad input ----------------------------------------------------------------------------------


async def refused(data: Any, **options: Any) -> InvalidRecordError:
    fake = cluster()
    async with Producer(fake.bootstrap, dialer=fake, **options) as producer:
        with pytest.raises(InvalidRecordError) as caught:
            await producer.send_arrow("t", data)
        await producer.flush()
        assert caught.value.delivery is None or caught.value.delivery.records == 0
        assert [fake.log("t", p) for p in range(3)] == [[]] * 3
    return caught.value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"value": [b"v"], "valeu": [b"v"]}, r"\['valeu'\] are not known"),
        ({"timestamp": [1]}, "a column key or value"),
        ({"value": [1]}, "column 'value' is of type int64; it must be binary"),
        ({"value": [b"v"], "key": [[b"v"]]}, "column 'key' is of type list"),
        ({"value": [b"v"], "timestamp": [1.5]}, "column 'timestamp' is of type double"),
        ({"value": [b"v"], "partition": ["1"]}, "column 'partition' is of type string"),
        ({"value": [b"v"], "headers": [{"a": b"b"}]}, "column 'headers' is of type struct"),
    ],
)
def test_columns_that_cannot_be_taken(data: Any, message: str) -> None:
    error = run_virtual(refused(pa.table(data)))
    assert error.index is None
    assert re.search(message, str(error)), error


def test_other_objects() -> None:
    assert "__arrow_c_array__, not list" in str(run_virtual(refused([b"v"])))
    twice = pa.Table.from_arrays([pa.array([b"v"])] * 2, ["value", "value"])
    assert "occurs twice" in str(run_virtual(refused(twice)))


BAD_ROWS = {
    "timestamp": (pa.array([*range(99), -1]), InvalidRecordError, "timestamp_ms"),
    "partition": (pa.array([*[0] * 99, -1]), InvalidRecordError, "partition"),
    "key": (pa.array([b""] * 99 + [bytes(3000)]), RecordTooLargeError, "max.request.size"),
    "headers": (
        pa.array([[]] * 99 + [[{"key": None, "value": b"v"}]], LISTS),
        InvalidRecordError,
        "header key",
    ),
}


@pytest.mark.parametrize("column", BAD_ROWS)
def test_rows_are_named(column: str) -> None:
    array, kind, message = BAD_ROWS[column]
    data = pa.record_batch({"value": [b"v"] * 100, column: array})
    error = run_virtual(refused(data[10:], max_request_size=2000))
    assert type(error) is kind
    assert error.index == 89
    assert "record 89" in str(error)
    assert message in str(error)


def test_partitions_that_are_not_there() -> None:
    data = pa.table({"value": [b"v"] * 3, "partition": [0, 1, 3]})
    error = run_virtual(refused(data))
    assert isinstance(error, PartitionOutOfRangeError)
    assert error.index == 2


@virtual_time
async def test_partitions_that_are_new(producing: StartProducer) -> None:
    fake = cluster(2)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first")
        fake.add_partitions("t", 4)
        data = pa.table({"value": [b"v"] * 3, "partition": [3, 1, 2]})
        metadata = await (await producer.send_arrow("t", data))
        assert {3, 2} < metadata.partitions.keys()


@virtual_time
async def test_a_bad_chunk_after_good_ones(producing: StartProducer) -> None:
    """The good ones are on their way; of the bad one nothing is sent."""
    fake = cluster(1)
    good = pa.record_batch({"value": [b"v"] * 10})
    bad = pa.record_batch({"value": [b"w"] * 9 + [bytes(3000)]})
    async with producing(fake, max_request_size=2000) as producer:
        with pytest.raises(
            RecordTooLargeError, match="20 records of the call were handed over"
        ) as caught:
            await producer.send_arrow("t", pa.Table.from_batches([good, good, bad, good]))
        assert caught.value.index == 29
        assert (await caught.value.delivery).records == 20
    assert [r.value for r in fake.log("t", 0)] == [b"v"] * 20


@virtual_time
async def test_a_stream_that_breaks(producing: StartProducer) -> None:
    def chunks() -> Any:
        yield pa.record_batch({"value": [b"v"] * 10})
        raise OSError("the disk is gone")

    async with producing(cluster(1)) as producer:
        reader = pa.RecordBatchReader.from_batches(pa.schema({"value": pa.binary()}), chunks())
        with pytest.raises(InvalidRecordError, match=r"after 10 rows.*the disk is gone") as caught:
            await producer.send_arrow("t", reader)
        assert (await caught.value.delivery).records == 10


async def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, columns.__name__)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    async with Producer("fake-0:9092", dialer=cluster()) as producer:
        with pytest.raises(ConfigError, match=r"kafkaclient\[arrow\]"):
            await producer.send_arrow("t", pa.table({"value": [b"v"]}))
