"""The columns of a read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, StructType

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    import pyarrow as pa


def read_schema(*, headers: bool, columns: AbstractSet[str] | None = None) -> StructType:
    """The columns of a read, as in spark-sql-kafka; with ``columns`` only those."""
    schema = StructType().add("key", "binary").add("value", "binary").add("topic", "string")
    schema = schema.add("partition", "integer").add("offset", "long")
    schema = schema.add("timestamp", "timestamp").add("timestampType", "integer")
    if headers:
        schema.add("headers", ArrayType(StructType().add("key", "string").add("value", "binary")))
    return StructType([each for each in schema if columns is None or each.name in columns])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types in which Spark takes these columns. Times are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - slow, only for tasks

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.0 and 4.1, where they always are
        return to_arrow_schema(schema)
