"""Columns between Kafka and Spark; without a session."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from kafkaclient.errors import ConfigError, InvalidRecordError
from kafkaclient.spark.options import read_schema
from kafkaclient.spark.rows import ReadColumns, WriteColumns
from kafkaclient.types import TopicPartition


def entries(value: object) -> ArrayType:
    return ArrayType(StructType().add("key", StringType()).add("value", value))


TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "map": MapType(StringType(), BinaryType()),
    "texts": entries(StringType()),
    "headers": entries(BinaryType()),
}


class Fetched:
    """The columns of a ``FetchedBatch``."""

    topic_partition = TopicPartition("t", 3)
    next_offset = 12

    def __init__(self, timestamp: int) -> None:
        entry = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
        self._batch = pa.record_batch(
            {
                "key": pa.array([b"k", None]),
                "value": pa.array([None, b"v"]),
                "offset": pa.array([7, 11]),
                "timestamp": pa.array([0, timestamp], pa.timestamp("ms", "UTC")),
                "timestampType": pa.array([0, 1], pa.int32()),
                "headers": pa.array(
                    [[], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]],
                    pa.list_(pa.field("item", entry, nullable=False)),
                ),
            }
        )

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("headers", [False, True])
def test_fetched_records_as_spark_columns(headers: bool) -> None:
    rows = ReadColumns(headers=headers).batch(Fetched(1500)).to_pylist()
    assert list(rows[0]) == read_schema(headers=headers).names
    assert rows[0] | {"headers": None} == {
        "key": b"k",
        "value": None,
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
        "timestampType": 0,
        "headers": None,  # as Spark has it for a record without
    }
    assert rows[1]["timestamp"] == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    if headers:
        assert rows[1]["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]


def test_a_timestamp_outside_of_sparks_range() -> None:
    with pytest.raises(InvalidRecordError, match=r"t-3: .* before offset 12"):
        ReadColumns(headers=False).batch(Fetched(2**62))


def columns(ddl: str, topic: str | None = "t") -> WriteColumns:
    """Spark cannot parse DDL without a session."""
    schema = StructType()
    for column in ddl.split(", "):
        name, kind = column.split()
        schema.add(name, TYPES[kind])
    return WriteColumns.check(schema, topic)


def test_only_the_columns_asked_for() -> None:
    wanted = frozenset({"offset", "topic"})
    found = ReadColumns(headers=False, columns=wanted).batch(Fetched(1500))
    assert found.schema.names == ["topic", "offset"]


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("key string", "no column value; there are key"),
        ("value int", "column value is of type INT"),
        ("value string, key bigint", "column key is of type BIGINT"),
        ("value string, partition bigint", "column partition is of type BIGINT"),
        ("value string, headers map", "column headers is of type MAP"),
        ("value string, headers texts", "column headers"),
        ("value string, VALUE string", "there are two columns value"),
    ],
)
def test_columns_that_cannot_be_written(ddl: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        columns(ddl)


def test_the_topic_is_required() -> None:
    with pytest.raises(ConfigError, match="give the option or the column topic"):
        columns("value string", None)
    with pytest.raises(ConfigError, match="column topic is of type INT"):
        columns("value string, topic int", None)


def test_one_topic_for_all_rows() -> None:
    """The option precedes the column, and other columns are left out."""
    found = columns("offset bigint, value string, topic string, key binary, headers headers")
    batch = pa.record_batch(
        {
            "offset": [1],
            "value": ["v"],
            "topic": ["another"],
            "key": [b"k"],
            "headers": [[{"key": "a", "value": b"1"}]],
        }
    )
    (records,) = found.records(batch)
    assert records.topic == "t"
    assert records.row(0) == 0
    assert records.columns.to_pylist() == [
        {"value": "v", "key": b"k", "headers": [{"key": "a", "value": b"1"}]}
    ]


def test_rows_go_to_their_topics_in_order() -> None:
    found = columns("value string, topic string", None)
    batch = pa.record_batch({"value": ["0", "1", "2", "3"], "topic": ["b", "a", "b", "a"]})
    by_topic = {each.topic: each for each in found.records(batch)}
    assert {name: each.columns["value"].to_pylist() for name, each in by_topic.items()} == {
        "b": ["0", "2"],
        "a": ["1", "3"],
    }
    assert [by_topic["b"].row(n) for n in range(2)] == [0, 2]
    (all_of_it,) = found.records(batch.filter(pa.array([True, False, True, False])))
    assert (all_of_it.topic, all_of_it.row(1)) == ("b", 1)
    assert list(found.records(batch.slice(0, 0))) == []


def test_rows_without_topic_are_apart() -> None:
    batch = pa.record_batch({"value": ["0", "1", "2"], "topic": ["a", None, "a"]})
    found = list(columns("value string, topic string", None).records(batch))
    assert [(each.topic, each.rows.to_pylist()) for each in found] == [("a", [0, 2]), (None, [1])]
    assert [each.before(2).columns.num_rows for each in found] == [1, 1]


def test_a_row_in_an_error() -> None:
    """Without data: errors go to logs."""
    found = columns("key binary, value string, headers headers, partition int, topic string", None)
    headers = [{"key": "secret", "value": b"secret"}]
    row = {
        "key": b"secret",
        "value": "s\u00e9cret",
        "headers": headers,
        "partition": 3,
        "topic": "t",
    }
    batch = pa.record_batch({name: [cell] for name, cell in row.items()})
    told = "topic t, key of 6 bytes, value of 7 bytes, headers 1, partition 3"
    assert found.describe(batch) == told
    nulls = pa.record_batch({name: [None] for name in row})
    assert found.describe(nulls) == told.replace("t,", "None,").replace(
        "of 6 bytes", "None"
    ).replace("of 7 bytes", "None").replace("headers 1", "headers None").replace(
        "partition 3", "partition None"
    )


blobs = st.lists(st.tuples(st.none() | st.binary(max_size=9), st.binary(max_size=9)), max_size=12)


@given(rows=blobs, cuts=st.tuples(st.integers(0, 12), st.integers(0, 12)), data=st.data())
def test_the_checksum_depends_on_the_rows_alone(rows, cuts, data) -> None:
    """Not on their order, on batches, slices, or the width of offsets."""
    columns = WriteColumns.check(StructType().add("key", "binary").add("value", "binary"), "t")

    def batch(of, kind=None):
        arrays = [pa.array([row[n] for row in of], kind or pa.binary()) for n in range(2)]
        return pa.RecordBatch.from_arrays(arrays, ["key", "value"])

    whole = columns.checksum(batch(rows))
    assert columns.checksum(batch(data.draw(st.permutations(rows)), pa.large_binary())) == whole
    first, last = sorted(min(cut, len(rows)) for cut in cuts)
    table = batch(rows)
    parts = table.slice(0, first), table.slice(first, last - first), table.slice(last)
    assert sum(columns.checksum(part) for part in parts) == whole
    assert columns.checksum(batch([*rows, (b"", b"\0")])) > whole


def test_other_rows_have_another_checksum() -> None:
    """Also where the bytes are the same: in another order, another cell or another row."""
    found = columns("key string, value string, topic string, partition int", None)

    def checksum(*rows: tuple[str | None, str | None, str, int]) -> int:
        names = ("key", "value", "topic", "partition")
        kinds = (pa.string(), pa.string(), pa.string(), pa.int32())
        cells = [
            pa.array(each, kind) for each, kind in zip(zip(*rows, strict=True), kinds, strict=True)
        ]
        return found.checksum(pa.RecordBatch.from_arrays(cells, list(names)))

    checksums = [
        checksum(("k1", "12", "t", 0), ("k2", "345", "t", 0)),
        checksum(("k1", "21", "t", 0), ("k2", "345", "t", 0)),
        checksum(("k1", "345", "t", 0), ("k2", "12", "t", 0)),
        checksum(("k11", "2", "t", 0), ("k2", "345", "t", 0)),
        checksum(("k1", "12", "u", 0), ("k2", "345", "t", 0)),
        checksum(("k1", "12", "t", 0), ("k2", "345", "t", 1)),
        checksum(("", "12", "t", 0), ("k2", "345", "t", 0)),
        checksum((None, "12", "t", 0), ("k2", "345", "t", 0)),
    ]
    assert len(set(checksums)) == len(checksums)


def test_headers_count_in_the_checksum() -> None:
    found = columns("value string, headers headers")
    checksums = {
        found.checksum(pa.record_batch({"value": ["v"], "headers": [headers]}))
        for headers in (None, [], [{"key": "a", "value": b"1"}], [{"key": "a", "value": b"2"}])
    }
    assert len(checksums) == 4
