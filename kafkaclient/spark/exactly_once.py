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
import uuid
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from kafkaclient.admin import Admin, TxnState
from kafkaclient.config.admin import AdminConfig
from kafkaclient.errors import (
    KafkaError,
    TopicExistsError,
    TransactionLostError,
    UnknownTopicError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.reader import Reader
from kafkaclient.spark.decisions import Decision, State, abort_batch, commit_batch
from kafkaclient.spark.garbage import freeze_imports
from kafkaclient.spark.kept import WORKER
from kafkaclient.spark.sink import TaskSink, write_rows
from kafkaclient.types import PreparedTransaction, TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    import pyarrow as pa

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.spark.options import WriteOptions
    from kafkaclient.spark.rows import WriteColumns
    from kafkaclient.wire.transaction_states import TransactionDescription

__all__ = [
    "ExactlyOnceWriter",
    "KafkaLedger",
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

_LEDGER = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2**20),  # so that little is to be read
    "min.cleanable.dirty.ratio": "0.1",
}

_STATES = {
    TxnState.ONGOING: State.OPEN,
    TxnState.PREPARE_COMMIT: State.COMMITTED,
    TxnState.COMPLETE_COMMIT: State.COMMITTED,
    TxnState.PREPARE_ABORT: State.ABORTED,
    TxnState.COMPLETE_ABORT: State.ABORTED,
}


@dataclass(frozen=True, slots=True)
class Prepared(WriterCommitMessage):
    """What a task tells the driver; ``transaction`` is None when it had no rows."""

    query: str
    """``{transactionalIdPrefix}-{query id}``: the query id lasts as long as the checkpoint."""
    records: int
    transaction: PreparedTransaction | None


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
        asyncio.run(self._end(messages, batchId, commit=True))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        asyncio.run(self._end(messages, batchId, commit=False))

    async def _end(
        self, messages: list[WriterCommitMessage | None], batch: int, *, commit: bool
    ) -> None:
        told = [message for message in messages if isinstance(message, Prepared)]
        if not told:
            return  # no task, no rows
        prepared = tuple(each.transaction for each in told if each.transaction is not None)
        async with _coordination(self._options, told[0].query) as (ledger, transactions):
            if commit:
                accept_loss = not self._options.fail_on_data_loss
                await commit_batch(ledger, transactions, batch, prepared, accept_loss=accept_loss)
            else:
                await abort_batch(ledger, transactions, batch, prepared)


class PreparingSink(TaskSink):
    """In a transaction, which is prepared in the end."""

    def __init__(self, producer: Producer, columns: WriteColumns, query: str) -> None:
        super().__init__(producer, columns)
        self._query = query

    async def finish(self) -> WriterCommitMessage:
        await super().finish()
        prepared = await self._producer.prepare_transaction()
        return Prepared(self._query, self._rows, prepared)


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
        try:
            await admin.describe_topic(query)
        except UnknownTopicError:
            with suppress(TopicExistsError):  # of a run that is ending
                await admin.create_topic(query, partitions=1, configs=_LEDGER)
        async with KafkaLedger(shared, query) as ledger:
            yield ledger, KafkaTransactions(admin, query)


class KafkaLedger:
    """The topic named as the query. Its only producer has the query's name as transactional id: the
    coordinator sees to it that the last who asked is the only one who writes."""

    def __init__(
        self, options: Mapping[str, object], query: str, *, dialer: Dialer | None = None
    ) -> None:
        self._options = dict(options)
        self._dialer = dialer
        self._query = query
        self._producer: Producer | None = None

    async def __aenter__(self) -> KafkaLedger:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def last(self) -> Decision | None:
        await self._close()
        # Before reading: what an earlier producer has begun to write is ended, and no more comes.
        producer = Producer(self._options | {"transactional_id": self._query}, dialer=self._dialer)
        await producer.start()
        self._producer = producer
        decision = None
        tp = TopicPartition(self._query, 0)
        committed = self._options | {"isolation_level": "read_committed"}
        async with Reader(committed, dialer=self._dialer) as reader:
            first = await reader.offsets(self._query, at="earliest")
            end = await reader.offsets(self._query, at="latest")
            async for batch in reader.read({tp: (first[tp], end[tp])}):
                for record in batch:
                    if record.value is not None:
                        decision = Decision.from_json(bytes(record.value))
        return decision

    async def write(self, decision: Decision) -> None:
        assert self._producer is not None, "last() comes first"
        async with self._producer.transaction():
            await self._producer.send(
                self._query, decision.to_json(), self._query.encode(), partition=0
            )

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop(timeout=_STOP_S)


class KafkaTransactions:
    """The transactions ``{query}-{batch}-{hex}``, as their coordinators know them."""

    def __init__(self, admin: Admin, query: str) -> None:
        self._admin = admin
        self._id = re.compile(re.escape(query) + r"-(\d+)-[0-9a-f]{32}")
        self._prefix = f"{query}-"

    async def states(
        self, prepared: Iterable[PreparedTransaction]
    ) -> dict[PreparedTransaction, State]:
        wanted = list(prepared)
        told = await self._admin.describe_transactions([each.transactional_id for each in wanted])
        return {each: _state(each, told[each.transactional_id]) for each in wanted}

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        try:
            await self._admin.end_transaction(prepared, commit=commit)
        except TransactionLostError:
            return False
        return True

    async def left(self, batch: int) -> list[PreparedTransaction]:
        listed = await self._admin.list_transactions(self._prefix, states=[TxnState.ONGOING])
        names = [each.transactional_id for each in listed]
        old = [
            name
            for name in names
            if (match := self._id.fullmatch(name)) and int(match.group(1)) <= batch
        ]
        told = await self._admin.describe_transactions(old)
        return [
            PreparedTransaction(name, found.producer_id, found.producer_epoch)
            for name, found in told.items()
            if found is not None and found.state is TxnState.ONGOING
        ]


def _state(prepared: PreparedTransaction, told: TransactionDescription | None) -> State:
    if told is None or told.producer_id != prepared.producer_id:
        return State.UNKNOWN
    return _STATES.get(told.state, State.UNKNOWN)
