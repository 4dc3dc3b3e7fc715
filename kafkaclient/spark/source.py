"""Batch reads, and what the tasks of all reads do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkaclient.errors import OffsetOutOfRangeError
from kafkaclient.reader import Reader
from kafkaclient.spark.kept import WORKER, Kept
from kafkaclient.spark.loop import LoopThread
from kafkaclient.spark.planning import plan_batch, report_loss
from kafkaclient.spark.rows import ReadColumns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kafkaclient.spark.offsets import OffsetRange
    from kafkaclient.spark.options import ReadOptions

__all__ = ["KafkaBatchReader", "RangePartition", "read_range"]


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
