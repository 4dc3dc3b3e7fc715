"""Arrow on both sides: what was fetched as Spark's columns, and Spark's rows as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from kafkaclient.errors import ConfigError, InvalidRecordError
from kafkaclient.spark.schema import read_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.reader import FetchedBatch

__all__ = ["ReadColumns", "Records", "WriteColumns"]


class ReadColumns:
    """Makes Spark's record batches of what has been fetched."""

    def __init__(self, *, headers: bool) -> None:
        self._schema = to_arrow_schema(read_schema(headers=headers), timezone="UTC")

    def batch(self, fetched: FetchedBatch) -> pa.RecordBatch:
        """Raises InvalidRecordError for a timestamp that Spark cannot hold."""
        topic, partition = fetched.topic_partition
        records = pa.record_batch(fetched)
        rows = records.num_rows
        made = {
            "topic": lambda: pa.repeat(pa.scalar(topic), rows),
            "partition": lambda: pa.repeat(pa.scalar(partition, pa.int32()), rows),
            "timestamp": lambda: records.column("timestamp").cast(pa.timestamp("us", "UTC")),
            "headers": lambda: _headers(
                records.column("headers"), self._schema.field("headers").type
            ),
        }
        try:
            columns = [
                made[name]() if name in made else records.column(name)
                for name in self._schema.names
            ]
        except pa.ArrowInvalid as error:
            raise InvalidRecordError(
                f"{topic}-{partition}: among the records before offset {fetched.next_offset} is "
                f"one that Spark's columns cannot hold: {error}"
            ) from error
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _headers(lists: pa.ListArray, kind: pa.ListType) -> pa.ListArray:
    """The same entries under Spark's names; null for records without headers, as in Spark."""
    entries = pa.StructArray.from_arrays(
        lists.values.flatten(), fields=[kind.value_type.field(n) for n in range(2)]
    )
    none = pc.equal(lists.value_lengths(), 0)
    return pa.ListArray.from_arrays(lists.offsets, entries, type=kind, mask=none)


# --- writing ------------------------------------------------------------------------------------

_BLOB: tuple[type[DataType], ...] = (StringType, BinaryType)
_FORMS = (
    "key and value STRING or BINARY, topic STRING, partition INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of one topic, ready for ``send_arrow``."""

    topic: str
    columns: pa.RecordBatch
    rows: pa.Array | None
    """Where they stand in the batch that they come from; None: it is all of it."""

    def row(self, index: int) -> int:
        """Of that batch."""
        return index if self.rows is None else int(self.rows[index].as_py())


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """Which of a frame's columns are written, by their position; the others are left out."""

    positions: dict[str, int]
    """Of ``key``, ``value``, ``headers`` and ``partition``."""
    topic: int | None
    """Of the column ``topic``; None: all rows have the same one."""
    same_topic: str | None

    @classmethod
    def check(cls, schema: StructType, topic: str | None) -> WriteColumns:
        """``topic``: the option of that name. Raises ConfigError, which names the column."""
        places: dict[str, int] = {}
        for place, column in enumerate(schema.fields):
            name = column.name.lower()
            if name not in _KINDS:
                continue
            if name in places:
                raise ConfigError(f"column {name} is there twice: leave one out, or rename it")
            if not _KINDS[name](column.dataType):
                raise ConfigError(
                    f"column {name} is of type {column.dataType.simpleString().upper()}; a row "
                    f"that is written has {_FORMS}"
                )
            places[name] = place
        if "value" not in places:
            raise ConfigError(
                f"there is no column value; there are {', '.join(schema.names) or 'none'}, and a "
                f"row that is written has {_FORMS}"
            )
        column_topic = places.pop("topic", None)
        if topic is None and column_topic is None:
            raise ConfigError("it is not said which topic: give the option or the column topic")
        return cls(places, None if topic is not None else column_topic, topic)

    def checksum(self, batch: pa.RecordBatch) -> int:
        """The sum of all bytes of keys and values and of their number, which neither the order of
        rows nor their division into batches changes. Takes about 0.2 ms per megabyte."""
        return sum(
            _byte_sum(batch.column(self.positions[name]))
            for name in ("key", "value")
            if name in self.positions
        )

    def records(self, batch: pa.RecordBatch) -> Iterator[Records]:
        """By topic, each in the order of the batch. Raises InvalidRecordError, whose ``index`` is
        the row, for one without topic."""
        names = list(self.positions)
        columns = pa.RecordBatch.from_arrays(
            [batch.column(self.positions[name]) for name in names], names=names
        )
        if self.same_topic is not None:
            yield Records(self.same_topic, columns, None)
            return
        topics = batch.column(self.topic)
        if topics.null_count:
            error = InvalidRecordError("column topic is null: give each row a topic")
            error.index = pc.index(topics.is_null(), True).as_py()
            raise error
        found = pc.unique(topics)
        for topic in found:
            if len(found) == 1:
                yield Records(topic.as_py(), columns, None)
                return
            rows = pc.indices_nonzero(pc.equal(topics, topic))
            yield Records(topic.as_py(), columns.take(rows), rows)


def _byte_sum(blobs: pa.Array) -> int:
    blobs = blobs.cast(pa.large_binary())
    _, offsets, data = blobs.buffers()
    if data is None or not len(blobs):
        return 0
    ends = memoryview(offsets).cast("q")
    start, end = ends[blobs.offset], ends[blobs.offset + len(blobs)]
    every = pa.Array.from_buffers(pa.uint8(), end - start, [None, data.slice(start, end - start)])
    total: int = (pc.sum(every).as_py() or 0) + (end - start) * 2**8
    return total


def _is_blob(kind: DataType) -> bool:
    return isinstance(kind, _BLOB)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    kinds = {each.name: type(each.dataType) for each in kind.elementType.fields}
    return kinds == {"key": StringType, "value": BinaryType}


_KINDS: Any = {
    "key": _is_blob,
    "value": _is_blob,
    "topic": lambda kind: isinstance(kind, StringType),
    "partition": lambda kind: isinstance(kind, IntegerType),
    "headers": _is_headers,
}
