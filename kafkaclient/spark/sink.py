"""Writing to topics: in each task one producer, which the worker keeps for its next task.

At least once, as spark-sql-kafka: a task that has succeeded has had each of its records
acknowledged. One that failed, was killed or lost against a speculative copy of itself may have
written some of its records, or all; the attempt that takes its place writes all of them again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kafkaclient.errors import InvalidRecordError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.spark.loop import LoopThread
    from kafkaclient.spark.options import WriteOptions
    from kafkaclient.spark.rows import Records, WriteColumns

__all__ = ["KafkaStreamWriter", "KafkaWriter", "TaskSink", "Written", "write_rows"]

# So many batches may be unacknowledged; memory is limited by buffer.memory.
_UNDER_WAY = 64


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver: how many records it has had acknowledged."""

    records: int


class _Writer:
    def __init__(self, options: WriteOptions, columns: WriteColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, self._columns, iterator)


class KafkaWriter(_Writer, DataSourceArrowWriter):
    """A batch write. A commit has nothing to do: the records of the tasks are in the topic."""


class KafkaStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A streaming write. Each micro-batch is written as a batch write."""


def _write(
    options: WriteOptions, columns: WriteColumns, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    # Here, because the processes that plan and commit each micro-batch need none of it.
    from kafkaclient.producer.producer import Producer  # noqa: PLC0415
    from kafkaclient.spark.kept import WORKER  # noqa: PLC0415

    with WORKER.client(Producer, options.client) as producer:
        return write_rows(WORKER.loop, TaskSink(producer, columns), batches)


def write_rows(
    loop: LoopThread, sink: TaskSink, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """From a task's rows to what it tells the driver, with a producer that has been started.
    Spark's thread waits for rows, the loop's for brokers."""
    loop.feed(batches, sink.take)
    return loop.run(sink.finish())


class TaskSink:
    """Feeds a producer with record batches; errors say which row of the task it was."""

    def __init__(self, producer: Producer, columns: WriteColumns) -> None:
        self._producer = producer
        self._columns = columns
        self._under_way: deque[BulkDelivery] = deque()
        self._rows = 0

    async def take(self, batch: pa.RecordBatch) -> None:
        """Hand over all rows; raises what is wrong with them, or with those before."""
        try:
            for records in self._columns.records(batch):
                await self._send(records)
        except InvalidRecordError as error:
            if error.index is None:
                raise
            raise type(error)(f"row {self._rows + error.index} of {_task()}: {error}") from error
        self._rows += batch.num_rows
        while self._under_way and (len(self._under_way) > _UNDER_WAY or self._under_way[0].done()):
            await self._acknowledged()

    async def _send(self, records: Records) -> None:
        try:
            delivery = await self._producer.send_arrow(records.topic, records.columns)
        except KafkaError as error:
            if isinstance(error, InvalidRecordError) and error.index is not None:
                told = type(error)(f"topic {records.topic}: {error}")
                told.index = records.row(error.index)
                raise told from error
            raise
        self._under_way.append(delivery)

    async def _acknowledged(self) -> None:
        await self._under_way[0]
        self._under_way.popleft()

    async def finish(self) -> WriterCommitMessage:
        """When every record is acknowledged; raises BulkDeliveryError if one is not."""
        await self._producer.flush()
        while self._under_way:
            await self._acknowledged()
        return Written(self._rows)


def _task() -> str:
    context = TaskContext.get()
    if context is None:
        return "the task"
    return f"partition {context.partitionId()} of the frame"
