"""The data source behind ``format("kafkaclient")``, and its batch reads.

Spark makes it from the options wherever it needs one, and sends copies to its workers: nothing
here opens a connection before a read is planned or a task runs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafkaclient.errors import ConfigError, OffsetOutOfRangeError
from kafkaclient.reader import Reader
from kafkaclient.spark.exactly_once import ExactlyOnceWriter
from kafkaclient.spark.garbage import freeze_imports
from kafkaclient.spark.kept import WORKER, Kept
from kafkaclient.spark.loop import LoopThread
from kafkaclient.spark.options import SUBSCRIPTIONS, ReadOptions, WriteOptions
from kafkaclient.spark.planning import plan_batch, report_loss
from kafkaclient.spark.rows import ReadColumns, WriteColumns, read_schema
from kafkaclient.spark.sink import KafkaStreamWriter, KafkaWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from kafkaclient.spark.offsets import OffsetRange

__all__ = ["KafkaBatchReader", "KafkaDataSource", "RangePartition", "read_range"]

_log = logging.getLogger(__name__)


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
        options = ReadOptions.parse(self.options, "batch")
        _check_read(schema, options)
        return KafkaBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        # Spark before 4.2 has no admission control; batch reads and all writes do without.
        from kafkaclient.spark.stream import KafkaStreamReader  # noqa: PLC0415

        options = ReadOptions.parse(self.options, "streaming")
        _check_read(schema, options)
        return KafkaStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> KafkaWriter:
        _check_append(overwrite)
        options = WriteOptions.parse(self.options, "batch")
        return KafkaWriter(options, WriteColumns.check(schema, options.topic))

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        _check_append(overwrite)
        freeze_imports()  # asked for in each micro-batch, twice
        options = WriteOptions.parse(self.options, "streaming")
        kind = ExactlyOnceWriter if options.exactly_once else KafkaStreamWriter
        return kind(options, WriteColumns.check(schema, options.topic))


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


# --- reading ------------------------------------------------------------------------------------


class RangePartition(InputPartition):
    """What one task reads; ``value`` is an :class:`OffsetRange`."""

    value: OffsetRange | None


class KafkaBatchReader(DataSourceReader):
    """From where to where is decided once, when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        with LoopThread("kafkaclient-plan") as loop:
            ranges = loop.run(plan_batch(self._options))
        return [RangePartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value)


def read_range(
    options: ReadOptions, wanted: OffsetRange | None, kept: Kept = WORKER
) -> Iterator[pa.RecordBatch]:
    """The records of a task. The next batch is fetched while Spark takes the one before it."""
    if wanted is None:  # Spark makes one task where there is nothing to read
        return
    columns = ReadColumns(headers=options.include_headers)
    with kept.client(Reader, options.client) as reader:
        fetched = _fetched(reader, options, wanted)
        try:
            for batch in kept.loop.iterate(fetched):
                yield columns.batch(batch)
        finally:
            kept.loop.run(fetched.aclose())


async def _fetched(reader: Reader, options: ReadOptions, wanted: OffsetRange) -> Any:
    """An asynchronous generator of batches."""
    tp, start, end = wanted.topic_partition, wanted.start, wanted.end
    written = (await reader.offsets([tp], "latest"))[tp]
    if written < end:  # nobody knows whether the rest will ever come
        report_loss(
            f"{tp} is to be read from offset {start} to {end}, and ends at {written}",
            fail=options.fail_on_data_loss,
        )
        end = written
    while start < end:
        reading = reader.read({tp: (start, end)}, headers=options.include_headers)
        try:
            async for batch in reading:
                yield batch
        except OffsetOutOfRangeError as error:
            if error.available is None:
                raise
            (first, last), position = error.available, reading.positions[tp]
            report_loss(
                f"{tp} is to be read from offset {position} to {end}, and has {first} to {last}",
                fail=options.fail_on_data_loss,
            )
            start = max(position, first) if position <= last else end
        else:
            start = end
        finally:
            reading.close()
