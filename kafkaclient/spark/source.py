"""Batch reads, and the tasks of all reads.

The processes that create a reader, plan a read and run its tasks all import this module. Functions
therefore import what only one of these needs: it is most of what a process costs at its start.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkaclient.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicError
from kafkaclient.spark.filters import conditions, spark_pushes_filters

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from kafkaclient.reader import FetchedBatch, Reader
    from kafkaclient.spark.client_cache import ClientCache
    from kafkaclient.spark.filters import Condition
    from kafkaclient.spark.offsets import ReadRange
    from kafkaclient.spark.options import ReadOptions
    from kafkaclient.types import TopicPartition


class KafkaBatchReader(DataSourceReader):
    """A batch read. Its offsets are fixed when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._conditions: tuple[Condition, ...] = ()

    def partitions(self) -> list[InputPartition]:
        from kafkaclient.spark.client_cache import LoopThread  # noqa: PLC0415
        from kafkaclient.spark.planning import plan_batch  # noqa: PLC0415

        with LoopThread("kafkaclient-plan") as loop:
            ranges = loop.run(plan_batch(self._options, conditions=self._conditions))
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value)


class FilteringBatchReader(KafkaBatchReader):
    """A batch read that leaves out offset ranges without matching records."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self._conditions = conditions(filters)
        return filters  # Spark applies them to the rows


def batch_reader(options: ReadOptions) -> KafkaBatchReader:
    return (FilteringBatchReader if spark_pushes_filters() else KafkaBatchReader)(options)


def read_range(
    options: ReadOptions, wanted: ReadRange | None, cache: ClientCache | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a task. The next batch is fetched while Spark processes the current one.

    ``cache`` keeps clients for later tasks. The default is the cache of the process.
    """
    if wanted is None:  # Spark runs one task, with None, if a read has no partitions
        return
    from kafkaclient.reader import Reader  # noqa: PLC0415
    from kafkaclient.spark.client_cache import WORKER_CACHE  # noqa: PLC0415
    from kafkaclient.spark.rows import ReadColumns  # noqa: PLC0415

    cache = cache or WORKER_CACHE
    columns = ReadColumns(headers=options.include_headers, columns=options.columns)
    with cache.client(Reader, options.client) as reader:
        fetched = _fetch(reader, options, wanted)
        try:
            with closing(cache.loop.iterate(fetched)) as batches:
                for batch in batches:
                    yield columns.batch(batch)
        finally:
            cache.loop.run(fetched.aclose())


async def _fetch(
    reader: Reader, options: ReadOptions, wanted: ReadRange
) -> AsyncGenerator[FetchedBatch]:
    tp, start, end = wanted.topic_partition, wanted.start, wanted.end
    log_end = await _log_end(reader, tp)
    if log_end is None:
        options.report_loss(f"{tp} is read from offset {start} to {end}, but does not exist")
        return
    if log_end < end:  # records were lost, or the topic was created again
        options.report_loss(
            f"{tp} is read from offset {start} to {end}, but ends at {log_end}",
            "the topic was created again, brokers have lost records, or an option (endingOffsets) "
            "is beyond the end. With failOnDataLoss=false the remaining records are read",
        )
        end = log_end
    while start < end:
        reading = reader.read({tp: (start, end)}, headers=options.include_headers)
        try:
            async for batch in reading:
                yield batch
        except OffsetOutOfRangeError as error:
            if error.available is None:
                raise
            (first, last), position = error.available, reading.positions[tp]
            options.report_loss(
                f"{tp} is read from offset {position} to {end}, but has {first} to {last}"
            )
            start = max(position, first) if position <= last else end  # behind the end is nothing
        except UnknownTopicError:
            position = reading.positions[tp]
            options.report_loss(
                f"{tp} is read from offset {position} to {end}, but was created again"
            )
            start = end
        else:
            start = end
        finally:
            reading.close()


async def _log_end(reader: Reader, tp: TopicPartition) -> int | None:
    """None: the topic does not exist; the reader has asked for it for ``max.block.ms``."""
    try:
        return (await reader.offsets([tp], "latest"))[tp]
    except KafkaError as error:
        if isinstance(error, UnknownTopicError) or isinstance(error.__cause__, UnknownTopicError):
            return None
        raise
