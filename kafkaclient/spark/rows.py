"""Converts fetched records to Spark's columns, and Spark's rows to records, all as Arrow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from kafkaclient.errors import ConfigError, InvalidRecordError
from kafkaclient.spark.options import read_schema
from kafkaclient.wire.compression import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from kafkaclient.reader import FetchedBatch


def _uint64(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())


# The steps of the finalizer of SplitMix64: a shift, and a factor. Its last step is a shift alone.
_STEPS = (
    (_uint64(30), _uint64(0xBF58476D1CE4E5B9)),
    (_uint64(27), _uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = _uint64(31)
_FACTOR = _STEPS[0][1]
_HALF = _uint64(32)
_LOW_HALF = _NULL_SIZE = _uint64(2**32 - 1)


class ReadColumns:
    """Converts fetched batches to Spark's record batches."""

    def __init__(self, *, headers: bool, columns: AbstractSet[str] | None = None) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - slow

        schema = read_schema(headers=headers, columns=columns)
        try:
            self._schema = to_arrow_schema(schema, timezone="UTC")
        except TypeError:  # Spark 4.0 and 4.1, where times always are in UTC
            self._schema = to_arrow_schema(schema)

    def batch(self, fetched: FetchedBatch) -> pa.RecordBatch:
        """Spark's columns of the batch. Raises InvalidRecordError for an invalid timestamp."""
        topic, partition = fetched.topic_partition
        records = pa.record_batch(fetched)
        rows, schema = records.num_rows, self._schema
        columns = {name: records.column(name) for name in records.schema.names}
        columns["topic"] = pa.repeat(pa.scalar(topic), rows)
        columns["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), rows)
        if "headers" in schema.names:
            columns["headers"] = _headers(columns["headers"], schema.field("headers").type)
        try:
            if "timestamp" in schema.names:
                columns["timestamp"] = columns["timestamp"].cast(pa.timestamp("us", "UTC"))
        except pa.ArrowInvalid as error:
            raise InvalidRecordError(
                f"{topic}-{partition}: a record before offset {fetched.next_offset} does not fit "
                f"into Spark's columns: {error}"
            ) from error
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _headers(lists: pa.ListArray, kind: pa.ListType) -> pa.ListArray:
    """The headers with Spark's field names. Null for records without headers, as in Spark."""
    entries = pa.StructArray.from_arrays(
        lists.values.flatten(), fields=[kind.value_type.field(n) for n in range(2)]
    )
    none = pc.equal(lists.value_lengths(), 0)
    return pa.ListArray.from_arrays(lists.offsets, entries, type=kind, mask=none)


_TYPES: dict[str, Any] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": StringType,
    "partition": IntegerType,
    "headers": ArrayType,
}
_ACCEPTED_COLUMNS = (
    "key and value STRING or BINARY, topic STRING, partition INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of one topic, ready for ``send_arrow``."""

    topic: str | None
    """None: these rows have no topic, and cannot be sent."""
    columns: pa.RecordBatch
    rows: pa.Array | None
    """Indexes of the rows in the original batch. None: all of its rows."""

    def before(self, row: int) -> Records:
        """Those before the row with this index in the original batch."""
        count = row if self.rows is None else pc.sum(pc.less(self.rows, row)).as_py()
        return replace(self, columns=self.columns.slice(0, count))

    def row(self, index: int) -> int:
        """The index in the original batch."""
        return index if self.rows is None else int(self.rows[index].as_py())


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """The positions of the columns that are written. Other columns are ignored."""

    positions: dict[str, int]
    """Positions of ``key``, ``value``, ``headers`` and ``partition``."""
    topic: int | None
    """Position of the column ``topic``. None: all rows go to ``same_topic``."""
    same_topic: str | None

    @classmethod
    def check(cls, schema: StructType, topic: str | None) -> WriteColumns:
        """The columns of the schema. ``topic`` is the option. Raises ConfigError with the
        column."""
        positions: dict[str, int] = {}
        for position, column in enumerate(schema.fields):
            name = column.name.lower()
            if name not in _TYPES:
                continue
            if name in positions:
                raise ConfigError(f"there are two columns {name}: drop or rename one")
            kind = column.dataType
            if not isinstance(kind, _TYPES[name]) or (name == "headers" and not _is_headers(kind)):
                raise ConfigError(
                    f"column {name} is of type {kind.simpleString().upper()}; the "
                    f"columns of a write are {_ACCEPTED_COLUMNS}"
                )
            positions[name] = position
        if "value" not in positions:
            raise ConfigError(
                f"there is no column value; there are {', '.join(schema.names) or 'none'}, and "
                f"the columns of a write are {_ACCEPTED_COLUMNS}"
            )
        column_topic = positions.pop("topic", None)
        if topic is None and column_topic is None:
            raise ConfigError("the topic is missing: give the option or the column topic")
        return cls(positions, None if topic is not None else column_topic, topic)

    def checksum(self, batch: pa.RecordBatch) -> int:
        """The sum of a 64-bit hash of each row, of all columns that are written. Neither the order
        of the rows nor their division into batches changes it. Takes about 0.4 us per
        row with a key and a value."""
        hashes = _uint64(0)
        places = [self.positions[name] for name in sorted(self.positions)]
        for place in places if self.topic is None else [*places, self.topic]:
            cells = _as_blobs(batch.column(place))
            crcs = pa.array(map(crc32c, cells.fill_null(b"").to_pylist()), pa.uint64())
            sizes = pc.binary_length(cells).cast(pa.uint64()).fill_null(_NULL_SIZE)
            cell_hashes = pc.bit_wise_xor(crcs, pc.shift_left(sizes, _HALF))
            hashes = pc.add(pc.multiply(hashes, _FACTOR), cell_hashes)
        # CRCs are linear: unmixed, rows that exchange their values would have the same sum.
        for shift, factor in _STEPS:
            hashes = pc.multiply(_shifted(hashes, shift), factor)
        hashes = _shifted(hashes, _LAST_SHIFT)
        high, low = pc.shift_right(hashes, _HALF), pc.bit_wise_and(hashes, _LOW_HALF)
        return ((pc.sum(high).as_py() or 0) << 32) + (pc.sum(low).as_py() or 0)

    def describe(self, row: pa.RecordBatch) -> str:
        """The cells of a row that are written. Of keys, values and headers only the size is told:
        messages go to logs."""
        places = self.positions if self.topic is None else {"topic": self.topic, **self.positions}
        cells = {name: row.column(place)[0].as_py() for name, place in places.items()}
        for name in {"key", "value", "headers"} & cells.keys():
            if (cell := cells[name]) is not None:
                size = len(cell.encode() if isinstance(cell, str) else cell)
                cells[name] = size if name == "headers" else f"of {size} bytes"
        return ", ".join(f"{name} {cell}" for name, cell in cells.items())

    def records(self, batch: pa.RecordBatch) -> Iterator[Records]:
        """The rows by topic, each in the order of the batch; the topics in the order of their first
        rows."""
        columns = batch.select([*self.positions.values()]).rename_columns([*self.positions])
        if self.same_topic is not None:
            found = [self.same_topic]
        else:
            topics = batch.column(self.topic)
            found = pc.unique(topics).to_pylist()
        if len(found) == 1:
            yield Records(found[0], columns, None)
            return
        for topic in found:
            chosen = topics.is_null() if topic is None else pc.equal(topics, topic)
            rows = pc.indices_nonzero(chosen)
            yield Records(topic, columns.take(rows), rows)


def _as_blobs(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type):  # headers
        texts = (None if cell is None else repr(cell) for cell in column.to_pylist())
        column = pa.array(texts, pa.large_string())
    elif pa.types.is_integer(column.type):  # the partition
        column = column.cast(pa.large_string())
    return column.cast(pa.large_binary())


def _shifted(hashes: pa.Array, shift: pa.Scalar) -> pa.Array:
    return pc.bit_wise_xor(hashes, pc.shift_right(hashes, shift))


def _is_headers(kind: ArrayType) -> bool:
    if not isinstance(kind.elementType, StructType):
        return False
    kinds = {each.name: type(each.dataType) for each in kind.elementType.fields}
    return kinds == {"key": StringType, "value": BinaryType}
