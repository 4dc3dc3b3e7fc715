"""A streaming write whose records read-committed consumers see exactly once.

Each attempt of a task writes in its own transaction and only prepares it. The driver commits or
aborts it as :mod:`kafkaclient.spark.commit` describes, with a topic as ledger.

PySpark creates a new writer for every batch, another one in each worker, and a third one in a new
process for each commit or abort. That process knows only the options, the tasks' messages and the
batch number. So writers have no state. Transactional ids are never reused: an attempt that Spark
has abandoned, but that still runs, cannot touch prepared transactions.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kafkaclient.admin import Admin, TxnState
from kafkaclient.config.admin import AdminConfig
from kafkaclient.errors import KafkaError, TransactionLostError
from kafkaclient.producer.producer import Producer
from kafkaclient.spark.checkpoint import end_offsets
from kafkaclient.spark.client_cache import WORKER_CACHE
from kafkaclient.spark.commit import State, TransactionStatus, abort_batch, commit_batch
from kafkaclient.spark.decisions import Contents, Decision
from kafkaclient.spark.garbage import freeze_imports
from kafkaclient.spark.ledger import KafkaLedger, make_ledger
from kafkaclient.spark.sink import TaskSink, write_rows
from kafkaclient.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    import pyarrow as pa

    from kafkaclient.spark.options import WriteOptions
    from kafkaclient.spark.rows import WriteColumns
    from kafkaclient.wire.transaction_states import TransactionDescription

# How long a transaction may be open: from the batch's first record to its commit, including
# downtime of the query. Brokers allow no more by default (transaction.max.timeout.ms).
_TIMEOUT_MS = "900000"

_STOP_TIMEOUT_S = 5.0  # for a failed task to abort its transaction

_MAX_REQUESTS = 200  # in flight; with thousands, responses would time out

_STATES = {
    TxnState.ONGOING: State.OPEN,
    TxnState.PREPARE_COMMIT: State.COMMITTED,
    TxnState.COMPLETE_COMMIT: State.COMMITTED,
    TxnState.PREPARE_ABORT: State.ABORTED,
    TxnState.PREPARE_EPOCH_FENCE: State.ABORTED,
    TxnState.COMPLETE_ABORT: State.ABORTED,
}


@dataclass(frozen=True, slots=True)
class Prepared(WriterCommitMessage):
    """A task's message to the driver. ``transaction`` is None if the task had no rows."""

    query: str
    """``{transactionalIdPrefix}-{query id}``. The query id is stored in the checkpoint."""
    records: int
    transaction: PreparedTransaction | None
    checksum: int = 0
    """Checksum of the rows' keys and values (:meth:`WriteColumns.checksum`)."""


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """The writer for ``exactlyOnce=true``."""

    def __init__(self, options: WriteOptions, columns: WriteColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch = _query_and_batch(self._options.transactional_id_prefix)
        options = {"transaction.timeout.ms": _TIMEOUT_MS} | self._options.client
        name = f"{query}-{batch}-{uuid.uuid4().hex}"
        producer = Producer(options | {"transactional.id": name})
        freeze_imports()
        loop = WORKER_CACHE.loop
        try:
            loop.run(producer.start())
            loop.run(producer.begin_transaction())
            return write_rows(loop, PreparingSink(producer, self._columns, query), iterator)
        finally:  # stop() aborts a transaction that is not prepared
            loop.run(producer.stop(timeout=_STOP_TIMEOUT_S))

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

        async def run(query: str) -> None:
            options = self._options
            shared = AdminConfig.build(options.client, {}).for_producer()
            async with Admin(shared, limits=None) as admin:
                await make_ledger(
                    admin,
                    query,
                    replicas=options.ledger_replication_factor,
                    min_insync=options.ledger_min_insync_replicas,
                )
                ledger = KafkaLedger(admin, shared, query)
                try:
                    await call(ledger, KafkaTransactions(admin, query))
                finally:
                    await ledger.close()

        if tasks:
            asyncio.run(run(tasks[0].query))


def _prepared(
    messages: list[WriterCommitMessage | None],
) -> tuple[list[Prepared], tuple[PreparedTransaction, ...]]:
    """The tasks' messages and their transactions. Both are empty if there were no tasks."""
    tasks = [message for message in messages if isinstance(message, Prepared)]
    return tasks, tuple(each.transaction for each in tasks if each.transaction is not None)


class PreparingSink(TaskSink):
    """Writes in a transaction, and prepares it at the end."""

    def __init__(self, producer: Producer, columns: WriteColumns, query: str) -> None:
        super().__init__(producer, columns)
        self._query = query
        self._checksum = 0

    async def take(self, batch: pa.RecordBatch) -> None:
        await super().take(batch)
        self._checksum += self._columns.checksum(batch)

    async def finish(self) -> WriterCommitMessage:
        await super().finish()
        prepared = await self._producer.prepare_transaction()
        return Prepared(self._query, self._rows, prepared, self._checksum)


def _query_and_batch(prefix: str) -> tuple[str, int]:
    """The query and the batch number of this task."""
    context = TaskContext.get()
    query = context and context.getLocalProperty("sql.streaming.queryId")
    batch = context and context.getLocalProperty("streaming.sql.batchId")
    if not query or not batch:
        raise KafkaError(
            "exactlyOnce: this task has no query id and batch number from Spark. Only "
            "micro-batches of a streaming query can be written exactly once"
        )
    return f"{prefix}-{query}", int(batch)


class KafkaTransactions:
    """The transactions ``{query}-{batch}-{hex}``, as their coordinators report them. ``clock`` is
    the wall clock in seconds: a transaction's start is in wall clock time."""

    def __init__(self, admin: Admin, query: str, *, clock: Callable[[], float] = time.time) -> None:
        self._admin = admin
        self._clock = clock
        self._request_slots = asyncio.Semaphore(_MAX_REQUESTS)
        self._query = query

    async def states(
        self, prepared: Sequence[PreparedTransaction]
    ) -> dict[PreparedTransaction, TransactionStatus]:
        described = await self._describe([each.transactional_id for each in prepared])
        # If this machine's clock is behind, the latest start time serves as the current time.
        begun = [each.started_ms for each in described.values() if each is not None]
        now_ms = max([self._clock() * 1000, *begun])
        return {each: _status(each, described[each.transactional_id], now_ms) for each in prepared}

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        async with self._request_slots:
            try:
                await self._admin.end_transaction(prepared, commit=commit)
            except TransactionLostError:
                return False
        return True

    async def _describe(self, names: Sequence[str]) -> dict[str, TransactionDescription | None]:
        described: dict[str, TransactionDescription | None] = {}
        for at in range(0, len(names), _MAX_REQUESTS):
            described |= await self._admin.describe_transactions(names[at : at + _MAX_REQUESTS])
        return described

    async def open_up_to(self, batch: int) -> list[PreparedTransaction]:
        name = re.compile(re.escape(self._query) + r"-(\d+)-[0-9a-f]{32}")
        listed = await self._admin.list_transactions(f"{self._query}-", states=[TxnState.ONGOING])
        found = [name.fullmatch(each.transactional_id) for each in listed]
        old = [match[0] for match in found if match and int(match[1]) <= batch]
        described = await self._describe(old)
        return [
            PreparedTransaction(transactional_id, now.producer_id, now.producer_epoch)
            for transactional_id, now in described.items()
            if now is not None and now.state is TxnState.ONGOING
        ]


def _status(
    prepared: PreparedTransaction, found: TransactionDescription | None, now_ms: float
) -> TransactionStatus:
    if found is None or found.producer_id != prepared.producer_id:
        return TransactionStatus(State.UNKNOWN)
    state = _STATES.get(found.state, State.UNKNOWN)
    if state is not State.OPEN:
        return TransactionStatus(state)
    return TransactionStatus(state, max(0.0, 1 - (now_ms - found.started_ms) / found.timeout_ms))
