"""What a transactional producer asks of its coordinators, in the way of transactions v1 or v2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error
from kafkaclient.cluster.coordinator import Outcome, outcome_of
from kafkaclient.errors import KafkaError, ProducerFencedError, UnsupportedVersionError
from kafkaclient.producer.batches.sequence import NO_PRODUCER_ID, ProducerIdentity
from kafkaclient.types import OffsetAndMetadata, PreparedTransaction
from kafkaclient.wire.codec import ApiVersionsCall
from kafkaclient.wire.transactions import (
    AddOffsetsToTxnCall,
    AddPartitionsToTxnCall,
    CoordinatorKind,
    EndTxnCall,
    EndTxnV2Call,
    InitTransactionsCall,
    OffsetFetchCall,
    TxnIdentity,
    TxnOffsetCommitCall,
    TxnOffsetCommitV2Call,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from kafkaclient.cluster.coordinator import Coordinators
    from kafkaclient.producer.batches.sequence import PartitionSequence
    from kafkaclient.types import ConsumerGroupMetadata, TopicPartition

__all__ = ["TransactionRequests", "TransactionalIdentity", "is_fatal"]

_NOT_COMMITTED = frozenset({48, 49, 59, 120})
"""INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, UNKNOWN_PRODUCER_ID, TRANSACTION_ABORTABLE: what
says for sure that a commit was not done and will not be, however often it was asked for."""


def is_fatal(error: KafkaError) -> bool:
    """Whether the producer may not go on after ``error`` in a call to a coordinator."""
    if error.code is None:
        return isinstance(error, UnsupportedVersionError)
    return outcome_of(error.code) is Outcome.FATAL


class TransactionalIdentity(ProducerIdentity):
    """The identity that is good for the transaction that is open, and given by the coordinator."""

    __slots__ = ("abort_only", "on_gap", "open")

    transactional = True

    def __init__(self) -> None:
        super().__init__(enabled=True)
        self.open = False
        """Whether batches may leave."""
        self.abort_only = False
        """Nothing is sent again: the transaction is going to be aborted."""
        self.on_gap: Callable[[], None] = lambda: None
        """Called when a partition's sequence cannot go on within the transaction."""

    @property
    def valid(self) -> bool:
        return self.open

    @property
    def wanted(self) -> bool:
        return False

    def forget_sequences(self, sequences: Iterable[PartitionSequence]) -> bool:
        # The epoch is not ours to raise. With transactions v2 the next one brings another.
        return not any(sequence.is_of(self) for sequence in sequences)

    def raise_epoch(self) -> bool:
        # What is lost in a transaction is not repaired; aborting it brings a new epoch.
        self.on_gap()
        return False


class TransactionRequests:
    """Every method takes as long as it takes, and raises a KafkaError when making the call again
    cannot help; see :func:`is_fatal`."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        identity: TransactionalIdentity,
        coordinators: Coordinators,
    ) -> None:
        self.v2 = False
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._identity = identity
        self._coordinators = coordinators

    @property
    def last_error(self) -> KafkaError | None:
        """What stood in the way last."""
        return self._coordinators.last_error

    async def initialize(self) -> None:
        """End what an older instance left open, fence it, and find out about transactions v2."""
        kind = CoordinatorKind.TRANSACTION
        versions = await self._coordinators.call(kind, self._id, ApiVersionsCall())
        self.v2 = versions.transactions_v2
        await self._init(NO_PRODUCER_ID, -1)

    async def raise_epoch(self) -> None:
        """End whatever is open under the own identity, and go on with the next epoch (KIP-360)."""
        await self._init(self._identity.producer_id, self._identity.epoch)

    async def _init(self, producer_id: int, epoch: int) -> None:
        call = InitTransactionsCall(self._id, self._timeout_ms, producer_id, epoch)
        # There is no other way on, and clusters that restart answer with all kinds of errors.
        answer = await self._coordinators.call(
            CoordinatorKind.TRANSACTION, self._id, call, final=frozenset()
        )
        self._check(answer.error_code, "asking for the producer id")
        self._identity.assign(answer.producer_id, answer.producer_epoch)

    async def end(self, *, commit: bool) -> None:
        call = (EndTxnV2Call if self.v2 else EndTxnCall)(self._who(), commit)
        # An earlier attempt may have been answered with nothing, and have worked.
        final = _NOT_COMMITTED if commit else None
        answer = await self._coordinators.call(
            CoordinatorKind.TRANSACTION, self._id, call, final=final
        )
        self._check(answer.error_code, "committing" if commit else "aborting")
        if answer.producer_epoch >= 0:
            self._identity.assign(answer.producer_id, answer.producer_epoch)

    async def add_partitions(
        self, partitions: tuple[TopicPartition, ...], over: asyncio.Event
    ) -> None:
        call = AddPartitionsToTxnCall(self._who(), partitions)
        answer = await self._coordinators.call(
            CoordinatorKind.TRANSACTION, self._id, call, over=over
        )
        code = answer.error_code
        guilty = ", ".join(str(tp) for tp, own in answer.codes.items() if own == code)
        self._check(code, f"adding {guilty} to the transaction")

    async def add_offsets(self, group: ConsumerGroupMetadata) -> None:
        """Make the group part of the transaction, which comes first with transactions v1."""
        add = AddOffsetsToTxnCall(self._who(), group.group_id)
        added = await self._coordinators.call(CoordinatorKind.TRANSACTION, self._id, add)
        self._check(added.error_code, f"adding offsets of group {group.group_id!r}")

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> ProducerFencedError | None:
        """Send the offsets to the group's coordinator. Returns the error if it refused the producer
        epoch: unlike the transaction's coordinator it cannot tell a fenced producer from one whose
        transaction has timed out."""
        commit = (TxnOffsetCommitV2Call if self.v2 else TxnOffsetCommitCall)(
            self._who(), group, offsets
        )
        answer = await self._coordinators.call(CoordinatorKind.GROUP, group.group_id, commit)
        try:
            self._check(answer.error_code, f"sending offsets of group {group.group_id!r}")
        except ProducerFencedError as error:
            return error
        return None

    async def committed(
        self, group_id: str, partitions: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        call = OffsetFetchCall(group_id, partitions)
        answer = await self._coordinators.call(CoordinatorKind.GROUP, group_id, call)
        self._check(answer.error_code, f"reading the offsets of group {group_id!r}")
        found = {
            tp: OffsetAndMetadata(o.offset, o.metadata, o.leader_epoch)
            for tp, o in answer.offsets.items()
            if o.offset >= 0
        }
        return {tp: found.get(tp) for tp in partitions}

    def prepared(self) -> PreparedTransaction:
        """What the open transaction can be ended by from elsewhere."""
        return PreparedTransaction(*self._who())

    def _who(self) -> TxnIdentity:
        return TxnIdentity(self._id, self._identity.producer_id, self._identity.epoch)

    def _check(self, code: int, what: str) -> None:
        if not code:
            return
        error = broker_error(code, f"transactional id {self._id!r}, {what}")
        if isinstance(error, ProducerFencedError) and not self.v2:
            error.add_note(
                "or the transaction had been open for longer than transaction.timeout.ms: before "
                "transactions v2 its coordinator fences the producer then"
            )
        raise error
