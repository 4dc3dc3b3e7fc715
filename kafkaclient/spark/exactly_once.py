"""The writer for ``exactlyOnce=true``: tasks prepare transactions, commit.py decides them.

Each attempt of a task writes in its own transaction and only prepares it. The driver commits or
aborts it as :mod:`kafkaclient.spark.commit` describes, with a topic as ledger.

PySpark creates a new writer for every batch, another one in each worker, and a third one in a new
process for each commit or abort. That process knows only the options, the tasks' messages and the
batch number. So writers have no state. Transactional ids are never reused: an attempt that Spark
has abandoned, but that still runs, cannot touch prepared transactions.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kafkaclient.admin import Admin
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.config.reader import AdminConfig
from kafkaclient.errors import (
    AuthorizationError,
    BulkDeliveryError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionLostError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.spark.client_cache import WORKER_CACHE
from kafkaclient.spark.commit import abort_batch, commit_batch
from kafkaclient.spark.jobs import freeze_objects
from kafkaclient.spark.ledger import (
    Contents,
    Decision,
    KafkaLedger,
    KafkaTransactions,
    make_ledger,
)
from kafkaclient.spark.offsets import end_offsets
from kafkaclient.spark.sink import TaskWriter, write_rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    import pyarrow as pa

    from kafkaclient.spark.options import WriteOptions
    from kafkaclient.spark.rows import WriteColumns
    from kafkaclient.types import PreparedTransaction


_log = logging.getLogger(__name__)

# How long a transaction may be open: from the batch's first record to its commit, including
# downtime of the query. Brokers allow no more by default (transaction.max.timeout.ms).
_TIMEOUT_MS = "900000"
_TRANSACTIONAL_ID_DENIED = 53
_ENDED = (47, 48, 90, 120)
"""INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED, TRANSACTION_ABORTABLE."""
_STOP_TIMEOUT_S = 5.0  # for a failed task to abort its transaction


@dataclass(frozen=True, slots=True)
class Prepared(WriterCommitMessage):
    """A task's message to the driver. ``transaction`` is None if the task had no rows."""

    query_name: str
    """``{transactionalIdPrefix}-{query id}``: the ledger's topic and transactional id, and the
    prefix of the tasks' transactional ids. The query id is stored in the checkpoint."""
    records: int
    transaction: PreparedTransaction | None
    checksum: int = 0
    """Checksum of the rows (:meth:`WriteColumns.checksum`)."""


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """The writer for ``exactlyOnce=true``."""

    def __init__(self, options: WriteOptions, columns: WriteColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query_name, batch = _query_and_batch(self._options.transactional_id_prefix)
        options = {"transaction.timeout.ms": _TIMEOUT_MS} | self._options.client
        identity = f"{query_name}-{batch}-{uuid.uuid4().hex}"
        producer = Producer(options | {"transactional.id": identity})
        freeze_objects()
        loop = WORKER_CACHE.loop
        try:
            loop.run(producer.start())
            loop.run(producer.begin_transaction())
            task = TransactionalTaskWriter(producer, self._columns, query_name)
            return write_rows(loop, task, iterator)
        except AuthorizationError as error:
            if error.code != _TRANSACTIONAL_ID_DENIED:
                raise
            prefix = self._options.transactional_id_prefix
            advice = denied(error.code, "Write", prefix, is_prefix=True)
            what = f"writing with transactionalIdPrefix={prefix}"
            raise broker_error(error.code, what, advice=advice) from error
        except (BulkDeliveryError, ProducerFencedError, TransactionAbortableError) as error:
            if not _has_ended(error):
                raise
            raise TransactionLostError(
                f"the transaction {identity} of this task was aborted by its coordinator, and none "
                "of the task's rows is visible. Did the task take longer than "
                f"kafka.transaction.timeout.ms={options['transaction.timeout.ms']}? Then raise the "
                "option, or give the batches less data (maxOffsetsPerTrigger): Spark repeats "
                "the task"
            ) from error
        finally:  # stop() aborts a transaction that is not prepared
            try:
                loop.run(producer.stop(timeout=_STOP_TIMEOUT_S))
            except Exception:  # noqa: BLE001 - must not hide the error of the task
                _log.exception("%r could not be stopped", producer)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Raises as :func:`commit_batch`. Then Spark calls :meth:`abort` and ends the query."""
        tasks, prepared = _prepared(messages)
        contents = Contents(
            sum(each.records for each in tasks),
            sum(each.checksum for each in tasks),
            self._options.topic,
            end_offsets(self._options.checkpoint, batchId),
        )
        wanted = Decision(batchId, prepared, contents=contents)
        accept_loss = not self._options.fail_on_data_loss
        self._coordinate(
            tasks, lambda ledger, own: commit_batch(ledger, own, wanted, accept_loss=accept_loss)
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tasks, prepared = _prepared(messages)
        self._coordinate(tasks, lambda ledger, own: abort_batch(ledger, own, batchId, prepared))

    def _coordinate(
        self,
        tasks: list[Prepared],
        call: Callable[[KafkaLedger, KafkaTransactions], Awaitable[None]],
    ) -> None:
        """Run ``call`` with the query's ledger and transactions, if there were any tasks."""

        async def run(query_name: str) -> None:
            options = self._options
            shared = AdminConfig.build(options.client, {}).for_producer()
            async with Admin(shared) as admin:
                await make_ledger(
                    admin,
                    query_name,
                    replicas=options.ledger_replication_factor,
                    min_insync=options.ledger_min_insync_replicas,
                )
                ledger = KafkaLedger(admin, shared, query_name)
                try:
                    await call(ledger, KafkaTransactions(admin, query_name))
                finally:
                    await ledger.close()

        if tasks:
            asyncio.run(run(tasks[0].query_name))


def _has_ended(error: BaseException) -> bool:
    """Whether the coordinator has aborted the task's transaction. With transactions v1 it fences
    the producer; no other producer can do so, because each task has its own transactional id."""
    while error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, KafkaError) and error.code in _ENDED


def _prepared(
    messages: list[WriterCommitMessage | None],
) -> tuple[list[Prepared], tuple[PreparedTransaction, ...]]:
    """The tasks' messages and their transactions. Both are empty if there were no tasks."""
    tasks = [message for message in messages if isinstance(message, Prepared)]
    return tasks, tuple(each.transaction for each in tasks if each.transaction is not None)


class TransactionalTaskWriter(TaskWriter):
    """Writes in a transaction, and prepares it at the end."""

    written = "No row of the task is visible: its transaction is aborted"

    def __init__(self, producer: Producer, columns: WriteColumns, query_name: str) -> None:
        super().__init__(producer, columns)
        self._query_name = query_name
        self._checksum = 0

    async def take(self, batch: pa.RecordBatch) -> None:
        await super().take(batch)
        self._checksum += self._columns.checksum(batch)

    async def finish(self) -> WriterCommitMessage:
        await super().finish()
        prepared = await self._producer.prepare_transaction()
        return Prepared(self._query_name, self._rows, prepared, self._checksum)


def _query_and_batch(prefix: str) -> tuple[str, int]:
    """The query's name and the batch number of this task."""
    context = TaskContext.get()
    query_id = context and context.getLocalProperty("sql.streaming.queryId")
    batch = context and context.getLocalProperty("streaming.sql.batchId")
    if not query_id or not batch:
        raise KafkaError(
            "exactlyOnce: this task has no query id and batch number from Spark. Only "
            "micro-batches of a streaming query can be written exactly once"
        )
    return f"{prefix}-{query_id}", int(batch)
