"""A streaming write that read-committed consumers see exactly once.

Each attempt of a task writes in a transaction of its own and only prepares it. What ends it is the
driver's part, in the order of :mod:`kafkaclient.spark.decisions`, with a topic as its ledger.

PySpark makes a new writer for every batch, another one in each worker, and a third in a process of
its own for each commit or abort, which knows nothing but the options, the messages of the tasks and
the batch's number. So nothing is kept in a writer, and transactional ids are never used again: an
attempt that Spark has given up on, and that goes on somewhere, cannot touch what is prepared.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kafkaclient.admin import Admin, TxnState
from kafkaclient.config.admin import AdminConfig
from kafkaclient.errors import KafkaError, TransactionLostError
from kafkaclient.producer.producer import Producer
from kafkaclient.spark.checkpoint import end_offsets
from kafkaclient.spark.decisions import (
    Contents,
    Decision,
    Seen,
    State,
    abort_batch,
    commit_batch,
)
from kafkaclient.spark.garbage import freeze_imports
from kafkaclient.spark.kept import WORKER
from kafkaclient.spark.ledger import KafkaLedger, make_ledger
from kafkaclient.spark.sink import TaskSink, write_rows
from kafkaclient.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    import pyarrow as pa

    from kafkaclient.spark.options import WriteOptions
    from kafkaclient.spark.rows import WriteColumns
    from kafkaclient.wire.transaction_states import TransactionDescription

__all__ = [
    "ExactlyOnceWriter",
    "KafkaTransactions",
    "Prepared",
    "PreparingSink",
    "begin",
]

_TIMEOUT_MS = "900000"
"""Brokers allow no more by default (transaction.max.timeout.ms); the query may be away for as long
between a batch's first record and its commit."""

_STOP_S = 5.0
"""How long a failed task tries to abort its transaction."""

_AT_ONCE = 200  # requests under way: with thousands, coordinators' answers would come too late

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
    """What a task tells the driver; ``transaction`` is None when it had no rows."""

    query: str
    """``{transactionalIdPrefix}-{query id}``: the query id lasts as long as the checkpoint."""
    records: int
    transaction: PreparedTransaction | None
    checksum: int = 0
    """Of the rows' keys and values (:meth:`WriteColumns.checksum`)."""


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """``exactlyOnce=true``."""

    def __init__(self, options: WriteOptions, columns: WriteColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch = _whose(self._options.transactional_id_prefix)
        options = {"transaction.timeout.ms": _TIMEOUT_MS} | self._options.client
        name = f"{query}-{batch}-{uuid.uuid4().hex}"
        producer = Producer(options | {"transactional.id": name})
        freeze_imports()
        loop = WORKER.loop
        try:
            loop.run(begin(producer))
            return write_rows(loop, PreparingSink(producer, self._columns, query), iterator)
        finally:  # what is not prepared is aborted
            loop.run(producer.stop(timeout=_STOP_S))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Raises as :func:`commit_batch`. Spark then calls :meth:`abort`, and ends the query."""
        told = _told(messages)
        if told:
            options = self._options
            ends = end_offsets(options.checkpoint, batchId)
            contents = Contents(
                sum(each.records for each in told),
                sum(each.checksum for each in told),
                options.topic,
                ends,
            )
            wanted = Decision(batchId, _prepared(told), contents=contents)
            asyncio.run(self._commit(told[0].query, wanted))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        told = _told(messages)
        if told:
            asyncio.run(self._abort(told[0].query, batchId, _prepared(told)))

    async def _commit(self, query: str, wanted: Decision) -> None:
        accept_loss = not self._options.fail_on_data_loss
        async with _coordination(self._options, query) as (ledger, transactions):
            await commit_batch(ledger, transactions, wanted, accept_loss=accept_loss)

    async def _abort(
        self, query: str, batch: int, prepared: tuple[PreparedTransaction, ...]
    ) -> None:
        async with _coordination(self._options, query) as (ledger, transactions):
            await abort_batch(ledger, transactions, batch, prepared)


def _told(messages: list[WriterCommitMessage | None]) -> list[Prepared]:
    """Empty: no task, no rows."""
    return [message for message in messages if isinstance(message, Prepared)]


def _prepared(told: list[Prepared]) -> tuple[PreparedTransaction, ...]:
    return tuple(each.transaction for each in told if each.transaction is not None)


class PreparingSink(TaskSink):
    """In a transaction, which is prepared in the end."""

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


async def begin(producer: Producer) -> None:
    """A task's transaction, by a producer that is not started."""
    await producer.start()
    await producer.begin_transaction()


def _whose(prefix: str) -> tuple[str, int]:
    """The query, and the number of the batch, that this task belongs to."""
    context = TaskContext.get()
    query = context and context.getLocalProperty("sql.streaming.queryId")
    batch = context and context.getLocalProperty("streaming.sql.batchId")
    if not query or not batch:
        raise KafkaError(
            "exactlyOnce: Spark does not tell this task its query and batch; only micro-batches of "
            "a streaming query can be written so"
        )
    return f"{prefix}-{query}", int(batch)


# --- the driver's part --------------------------------------------------------------------------


@asynccontextmanager
async def _coordination(
    options: WriteOptions, query: str
) -> AsyncIterator[tuple[KafkaLedger, KafkaTransactions]]:
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
            yield ledger, KafkaTransactions(admin, query)
        finally:
            await ledger.close()


class KafkaTransactions:
    """The transactions ``{query}-{batch}-{hex}``, as their coordinators know them. ``clock`` is the
    wall clock in seconds: coordinators tell by theirs when a transaction began."""

    def __init__(self, admin: Admin, query: str, *, clock: Callable[[], float] = time.time) -> None:
        self._admin = admin
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._id = re.compile(re.escape(query) + r"-(\d+)-[0-9a-f]{32}")
        self._prefix = f"{query}-"

    async def states(
        self, prepared: Sequence[PreparedTransaction]
    ) -> dict[PreparedTransaction, Seen]:
        told = await self._described([each.transactional_id for each in prepared])
        # This machine's clock may be behind the coordinators', but not by more than they show.
        begun = [each.started_ms for each in told.values() if each is not None]
        now_ms = max([self._clock() * 1000, *begun])
        return {each: _seen(each, told[each.transactional_id], now_ms) for each in prepared}

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        async with self._turns:
            try:
                await self._admin.end_transaction(prepared, commit=commit)
            except TransactionLostError:
                return False
        return True

    async def _described(self, names: Sequence[str]) -> dict[str, TransactionDescription | None]:
        told: dict[str, TransactionDescription | None] = {}
        for start in range(0, len(names), _AT_ONCE):
            told |= await self._admin.describe_transactions(names[start : start + _AT_ONCE])
        return told

    async def left(self, batch: int) -> list[PreparedTransaction]:
        listed = await self._admin.list_transactions(self._prefix, states=[TxnState.ONGOING])
        names = [each.transactional_id for each in listed]
        old = [
            name
            for name in names
            if (match := self._id.fullmatch(name)) and int(match.group(1)) <= batch
        ]
        told = await self._described(old)
        return [
            PreparedTransaction(name, found.producer_id, found.producer_epoch)
            for name, found in told.items()
            if found is not None and found.state is TxnState.ONGOING
        ]


def _seen(
    prepared: PreparedTransaction, told: TransactionDescription | None, now_ms: float
) -> Seen:
    if told is None or told.producer_id != prepared.producer_id:
        return Seen(State.UNKNOWN)
    state = _STATES.get(told.state, State.UNKNOWN)
    if state is not State.OPEN:
        return Seen(state)
    return Seen(state, max(0.0, 1 - (now_ms - told.started_ms) / told.timeout_ms))
