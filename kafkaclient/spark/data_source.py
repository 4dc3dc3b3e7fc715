"""The data source behind ``format("kafkaclient")``.

Spark makes it from the options wherever it needs one, and sends copies to its workers: nothing
here opens a connection before a read is planned or a task runs. It is imported by a process for
each step of planning, and by all sessions that use any Python data source; so what a method needs
is imported there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from kafkaclient.errors import ConfigError
from kafkaclient.spark.garbage import freeze_imports
from kafkaclient.spark.options import SUBSCRIPTIONS, ReadOptions, WriteOptions
from kafkaclient.spark.schema import read_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

__all__ = ["KafkaDataSource"]


class KafkaDataSource(DataSource):
    """``format("kafkaclient")``: reads and writes Kafka's topics, with the columns and options of
    spark-sql-kafka (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        return "kafkaclient"

    def schema(self) -> StructType:
        """Asked for by ``load()``, which so fails for options that no read accepts."""
        if not any(name in self.options for name in SUBSCRIPTIONS):
            return read_schema(headers=False)  # for a write; the reader will say what is missing
        try:
            options = ReadOptions.parse(self.options, "batch")
        except ConfigError:
            options = ReadOptions.parse(self.options, "streaming")
        return read_schema(headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkaclient.spark.source import KafkaBatchReader  # noqa: PLC0415

        options = ReadOptions.parse(self.options, "batch")
        _check_read(schema, options)
        return KafkaBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from kafkaclient.spark.stream import KafkaStreamReader  # noqa: PLC0415

        options = ReadOptions.parse(self.options, "streaming")
        _check_read(schema, options)
        return KafkaStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from kafkaclient.spark.rows import WriteColumns  # noqa: PLC0415
        from kafkaclient.spark.sink import KafkaWriter  # noqa: PLC0415

        _check_append(overwrite)
        options = WriteOptions.parse(self.options, "batch")
        return KafkaWriter(options, WriteColumns.check(schema, options.topic))

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        from kafkaclient.spark.rows import WriteColumns  # noqa: PLC0415
        from kafkaclient.spark.sink import KafkaStreamWriter  # noqa: PLC0415

        _check_append(overwrite)
        freeze_imports()  # asked in two processes for each micro-batch, which collect after it
        options = WriteOptions.parse(self.options, "streaming")
        columns = WriteColumns.check(schema, options.topic)
        if options.exactly_once:
            from kafkaclient.spark.exactly_once import ExactlyOnceWriter  # noqa: PLC0415

            return ExactlyOnceWriter(options, columns)
        return KafkaStreamWriter(options, columns)


def _check_append(overwrite: bool) -> None:
    if overwrite:
        raise ConfigError(
            "a topic cannot be overwritten: use .mode('append') for batches, and the output modes "
            "append or update for streams"
        )


def _check_read(schema: StructType, options: ReadOptions) -> None:
    fixed = read_schema(headers=options.include_headers)
    if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in fixed]:
        raise ConfigError(
            f"the columns of a read are always {fixed.simpleString()}: give no schema, and "
            "parse the column value"
        )
