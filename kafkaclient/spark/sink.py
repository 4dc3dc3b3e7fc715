"""Writes rows to topics, in batches and in streams: one producer per task, which is reused.

At least once, as in spark-sql-kafka: when a task succeeds, all its records are acknowledged. A task
that failed, was killed or lost against its speculative copy may have written some or all of its
records. The next attempt writes all of them again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafkaclient.errors import (
    AuthorizationError,
    InvalidRecordError,
    KafkaError,
    MetadataTimeoutError,
    UnknownTopicError,
)

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # PySpark 4.0: KafkaDataSource refuses streams, and only batches are written
    DataSourceStreamArrowWriter = DataSourceArrowWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.spark.client_cache import LoopThread
    from kafkaclient.spark.options import WriteOptions
    from kafkaclient.spark.rows import Records, WriteColumns


_MAX_UNACKNOWLEDGED = 64  # batches; buffer.memory limits their size
_OF_A_ROW = (InvalidRecordError, UnknownTopicError, MetadataTimeoutError, AuthorizationError)
"""Errors of one row, or of all rows of a topic."""


class TopicWriter:
    """Writes a task's rows: what batch and streaming writes have in common."""

    def __init__(self, options: WriteOptions, columns: WriteColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        # Imported here, because the processes that plan and commit micro-batches do not need it.
        from kafkaclient.producer.producer import Producer  # noqa: PLC0415
        from kafkaclient.spark.client_cache import WORKER_CACHE  # noqa: PLC0415

        with WORKER_CACHE.client(Producer, self._options.client) as producer:
            task = TaskWriter(producer, self._columns)
            return write_rows(WORKER_CACHE.loop, task, iterator)


class KafkaWriter(TopicWriter, DataSourceArrowWriter):
    """A batch write. Nothing to commit: the tasks' records are already in the topic."""


class KafkaStreamWriter(TopicWriter, DataSourceStreamArrowWriter):
    """A streaming write. Each micro-batch is written like a batch."""


def write_rows(
    loop: LoopThread, task: TaskWriter, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Write a task's rows with a started producer, and return the message for the driver. Spark's
    thread waits for rows while the loop's thread waits for brokers."""
    loop.feed(batches, task.take)
    return loop.run(task.finish())


class TaskWriter:
    """Sends record batches with a producer. Errors name the row of the task."""

    written = (
        "Rows of the task that were sent before may be in their topics; if Spark runs the task "
        "again, it writes them again"
    )
    """What a task that fails has written, as a sentence."""

    def __init__(self, producer: Producer, columns: WriteColumns) -> None:
        self._producer = producer
        self._columns = columns
        self._in_flight: deque[tuple[str, BulkDelivery]] = deque()
        self._rows = 0

    async def take(self, batch: pa.RecordBatch) -> None:
        """Send all rows. Raises the errors of these rows or of earlier ones.

        If rows of several topics cannot be sent, the error is that of the first one in the order of
        the batch. Only rows before it are sent after it is found.
        """
        bad: KafkaError | None = None
        row = batch.num_rows
        for records in self._columns.records(batch):
            if (sent := records.before(row)).columns.num_rows:
                try:
                    await self._send(sent, batch.num_rows)
                except _OF_A_ROW as error:
                    row, bad = records.row(getattr(error, "index", None) or 0), error
        if bad is not None:
            cells = self._columns.describe(batch.slice(row, 1))
            raise self._located(bad, f"row {self._rows + row} of {_task_name()} ({cells})") from bad
        self._rows += batch.num_rows
        while self._in_flight and (
            len(self._in_flight) > _MAX_UNACKNOWLEDGED or self._in_flight[0][1].done()
        ):
            await self._first_in_flight()

    async def _send(self, records: Records, rows: int) -> None:
        if records.topic is None:
            raise InvalidRecordError("column topic is null: give each row a topic")
        delivery = await self._producer.send_arrow(records.topic, records.columns)
        within = f"in rows {self._rows} to {self._rows + rows - 1} of {_task_name()}"
        self._in_flight.append((within, delivery))

    async def _first_in_flight(self) -> None:
        where, delivery = self._in_flight.popleft()
        try:
            await delivery
        except KafkaError as error:
            raise self._located(error, where) from error

    def _located(self, error: KafkaError, where: str) -> KafkaError:
        located = error.for_one()
        located.args = (f"{where}: {str(error).rstrip('.')}. {self.written}",)
        return located

    async def finish(self) -> WriterCommitMessage:
        """Wait until every record is acknowledged. Raises BulkDeliveryError if one is not."""
        await self._producer.flush()
        while self._in_flight:
            await self._first_in_flight()
        return WriterCommitMessage()  # Spark needs one; nothing reads it


def _task_name() -> str:
    context = TaskContext.get()
    return f"partition {context.partitionId()} of the frame" if context else "the task"
