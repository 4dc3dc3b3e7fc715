"""The columns of a read."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, StructType


def read_schema(*, headers: bool) -> StructType:
    """The columns of a read, as in spark-sql-kafka."""
    schema = StructType().add("key", "binary").add("value", "binary").add("topic", "string")
    schema = schema.add("partition", "integer").add("offset", "long")
    schema = schema.add("timestamp", "timestamp").add("timestampType", "integer")
    if headers:
        schema.add("headers", ArrayType(StructType().add("key", "string").add("value", "binary")))
    return schema
