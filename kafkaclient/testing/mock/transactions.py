"""The transactions of a mock producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import KafkaError, ProducerFencedError, TransactionAbortedError
from kafkaclient.producer.transactions.states import TransactionState, TransactionStatus
from kafkaclient.types import OffsetAndMetadata, PreparedTransaction, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from kafkaclient.testing.mock.records import MockRecord, PendingDeliveries, Script
    from kafkaclient.types import ConsumerGroupMetadata

_S = TransactionState


class MockOffsets(NamedTuple):
    """The arguments of one ``send_offsets_to_transaction``."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: ConsumerGroupMetadata


class MockTransactions:
    """Stands in for ``TransactionManager``, with the same states and no coordinator."""

    def __init__(
        self, transactional_id: str, deliveries: PendingDeliveries, script: Script
    ) -> None:
        self._transactional_id = transactional_id
        self._status = TransactionStatus(transactional_id)
        self._deliveries = deliveries
        self._script = script
        self.records: list[MockRecord] = []
        """The records of the open transaction."""
        self.offsets: list[MockOffsets] = []
        """The offsets of the open transaction."""
        self.committed_records: list[MockRecord] = []
        """Without a ``transactional.id``: all records."""
        self.committed_offsets: list[MockOffsets] = []
        self.commits = self.aborts = 0
        self._group_offsets: dict[tuple[str, TopicPartition], OffsetAndMetadata] = {}

    @property
    def state(self) -> TransactionState:
        return self._status.state

    @property
    def abortable(self) -> bool:
        return self.state in (_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR)

    def is_fatal(self, error: KafkaError) -> bool:
        return isinstance(error, ProducerFencedError)

    def initialize(self) -> None:
        self._status.move(_S.INITIALIZING)
        self._status.move(_S.READY)

    def check_open(self) -> None:
        if self.state is not _S.IN_TRANSACTION:
            advice = "begin_transaction comes first"
            raise self._status.not_allowed("the record was not sent", advice)

    def fail_transaction(self, error: KafkaError) -> None:
        """Leave the open transaction only its abort."""
        if self.state in (_S.IN_TRANSACTION, _S.PREPARED):
            self._status.cause = error
            self._status.move(_S.ABORTABLE_ERROR)

    def fence(self) -> None:
        """Every further call raises ProducerFencedError."""
        who = f"a newer producer with the transactional id {self._transactional_id!r} was started"
        self._status.cause = ProducerFencedError(who)
        if self.state is not _S.FATAL:
            self._status.move(_S.FATAL)
        self._drop("it was fenced")

    def clear(self) -> None:
        """Forget the ended transactions, except the groups' offsets."""
        self.committed_records.clear()
        self.committed_offsets.clear()
        self.commits = self.aborts = 0

    async def timed(self, _: str, work: Awaitable[None]) -> None:
        await work

    async def begin(self) -> None:
        self._script.run("begin_transaction")
        if self.state is not _S.READY:
            raise self._status.not_allowed("no transaction was begun", "it has to end first")
        self._status.move(_S.IN_TRANSACTION)

    async def prepare(self) -> PreparedTransaction | None:
        self._script.run("prepare_transaction")
        if self.state is not _S.PREPARED:
            if self.state is not _S.IN_TRANSACTION:
                raise self._status.not_allowed(
                    "nothing was prepared", "there is nothing to prepare"
                )
            self._status.move(_S.PREPARED)
        self._complete_all()
        used = self.records or self.offsets
        return PreparedTransaction(self._transactional_id, 0, 0) if used else None

    async def commit(self) -> None:
        if self.state not in (_S.IN_TRANSACTION, _S.PREPARED):
            raise self._status.not_allowed("nothing was committed", "there is nothing to commit")
        error = self._script.next("commit_transaction")
        if error is not None:
            self.fail_transaction(error)
            raise error
        self._complete_all()
        self._status.move(_S.COMMITTING)
        self._status.move(_S.READY)
        self.commits += 1
        self.committed_records += self.records
        self.committed_offsets += self.offsets
        for sent in self.offsets:
            for tp, offset in sent.offsets.items():
                self._group_offsets[sent.group.group_id, tp] = offset
        self.records, self.offsets = [], []

    async def abort(self) -> None:
        if not self.abortable:
            raise self._status.not_allowed("nothing was aborted", "there is nothing to abort")
        self._script.run("abort_transaction")
        self._drop("it was aborted")
        self._status.move(_S.ABORTING)
        self._status.move(_S.READY)
        self.aborts += 1

    def refuse_offsets(self, error: Exception) -> None:
        cause = KafkaError(f"send_offsets_to_transaction: {error}")
        cause.__cause__ = error
        self.fail_transaction(cause)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        self.check_open()
        error = self._script.next("send_offsets_to_transaction")
        if error is not None:
            self.fail_transaction(error)
            raise error
        self.offsets.append(MockOffsets(offsets, group))

    async def committed(
        self, group_id: str, partitions: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return {tp: self._group_offsets.get((group_id, tp)) for tp in partitions}

    def _complete_all(self) -> None:
        while self._deliveries.complete_next():
            pass

    def _drop(self, why: str) -> None:
        """Forget the records and offsets of the open transaction."""
        error = TransactionAbortedError(f"the record was not sent: its transaction ended, {why}")
        while self._deliveries.fail_next(error.for_one()):
            pass
        self.records, self.offsets = [], []
