"""The requests of a transactional producer to its coordinators, for transactions v1 and v2."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.cluster.backoff import UNKNOWN_TOPIC_READS, poll
from kafkaclient.cluster.coordinator import CallOutcome, outcome_of
from kafkaclient.errors import KafkaError, ProducerFencedError, UnsupportedVersionError
from kafkaclient.producer.batches.idempotence import NO_PRODUCER_ID
from kafkaclient.types import OffsetAndMetadata, PreparedTransaction
from kafkaclient.wire.api_versions import ApiVersionsCall
from kafkaclient.wire.producer_ids import InitTransactionsCall
from kafkaclient.wire.transactions import (
    AddOffsetsToTxnCall,
    AddPartitionsToTxnCall,
    CoordinatorKind,
    EndTxnCall,
    EndTxnV2Call,
    OffsetFetchCall,
    TxnIdentity,
    TxnOffsetCommitByIdCall,
    TxnOffsetCommitCall,
    TxnOffsetCommitV2Call,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from kafkaclient.cluster.coordinator import Coordinators
    from kafkaclient.producer.batches.idempotence import TransactionalIdentity
    from kafkaclient.types import ConsumerGroupMetadata, TopicPartition

_ID_EXPIRED = 49  # INVALID_PRODUCER_ID_MAPPING
_NOT_COMMITTED = frozenset({48, _ID_EXPIRED, 59, 120})
"""INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, UNKNOWN_PRODUCER_ID, TRANSACTION_ABORTABLE: with
these codes it is certain that the transaction was not committed and will not be."""


def is_fatal(error: KafkaError) -> bool:
    """Whether the producer cannot go on after a coordinator refused a call with ``error``: else
    only the transaction has failed. cluster/coordinator.py has the table of error codes."""
    if error.code is None:
        return isinstance(error, UnsupportedVersionError)
    return outcome_of(error.code) is CallOutcome.FATAL


class TransactionRequests:
    """Every method retries without a time limit, and raises a KafkaError when a retry cannot
    help. ``on_version(v2)``: whether the cluster has transactions v2 is known. ``topic_id(name)``:
    the id of a topic that the producer uses; None if it is not known."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        identity: TransactionalIdentity,
        coordinators: Coordinators,
        on_version: Callable[[bool], None],
        topic_id: Callable[[str], UUID | None],
    ) -> None:
        self.v2: bool = False
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._identity = identity
        self._coordinators = coordinators
        self._on_version = on_version
        self._topic_id = topic_id

    @property
    def last_error(self) -> KafkaError | None:
        """The error of the latest attempt that failed."""
        return self._coordinators.last_error

    async def initialize(self) -> None:
        """Fence older instances of the producer, abort their open transaction, and find out whether
        the cluster has transactions v2."""
        kind = CoordinatorKind.TRANSACTION
        versions = await self._coordinators.call(kind, self._id, ApiVersionsCall())
        self.v2 = versions.transactions_v2
        self._on_version(self.v2)
        await self._init(NO_PRODUCER_ID, -1)

    async def raise_epoch(self) -> None:
        """Abort the open transaction of this producer id, and take up the next epoch (KIP-360)."""
        await self._init(self._identity.producer_id, self._identity.epoch)

    async def _init(self, producer_id: int, epoch: int) -> None:
        call = InitTransactionsCall(self._id, self._timeout_ms, producer_id, epoch)
        # Every error that is not fatal is retried: clusters that restart answer with all kinds.
        answer = await self._coordinators.call(
            CoordinatorKind.TRANSACTION, self._id, call, final=frozenset()
        )
        self._check(answer.error_code, "requesting the producer id")
        self._identity.assign(answer.producer_id, answer.producer_epoch)

    async def end(self, *, commit: bool) -> None:
        call = (EndTxnV2Call if self.v2 else EndTxnCall)(self._txn_identity(), commit)
        # A commit whose answer was lost may have worked: its retry gets other error codes.
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
        call = AddPartitionsToTxnCall(self._txn_identity(), partitions)
        answer = await self._coordinators.call(
            CoordinatorKind.TRANSACTION, self._id, call, over=over
        )
        code = answer.error_code
        refused = ", ".join(str(tp) for tp, own in answer.codes.items() if own == code)
        self._check(code, f"adding {refused} to the transaction")

    async def add_offsets(self, group: ConsumerGroupMetadata) -> None:
        """Add the group to the transaction; transactions v1 require this before its offsets."""
        add = AddOffsetsToTxnCall(self._txn_identity(), group.group_id)
        added = await self._coordinators.call(CoordinatorKind.TRANSACTION, self._id, add)
        self._check(added.error_code, f"adding offsets of group {group.group_id!r}")

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> ProducerFencedError | None:
        """Send the offsets to the group's coordinator. Returns the error if it refused the producer
        epoch, which alone does not mean that the producer is fenced (see
        :meth:`TransactionManager.fail_transaction`)."""
        identity, name = self._txn_identity(), group.group_id
        ids = {tp: given.topic_id or self._topic_id(tp.topic) for tp, given in offsets.items()}
        known = {tp: topic_id for tp, topic_id in ids.items() if topic_id is not None}
        if self.v2 and 0 < len(known) < len(offsets):  # two requests: by id, and by name
            for by_id in (True, False):
                part = {tp: each for tp, each in offsets.items() if (tp in known) is by_id}
                if (refused := await self.send_offsets(part, group)) is not None:
                    return refused
            return None
        commit: TxnOffsetCommitCall
        if self.v2 and known:
            commit = TxnOffsetCommitByIdCall(identity, group, offsets, known)
        else:
            commit = (TxnOffsetCommitV2Call if self.v2 else TxnOffsetCommitCall)(
                identity, group, offsets
            )
        answer = await poll(
            partial(self._coordinators.call, CoordinatorKind.GROUP, name, commit),
            lambda answer: not answer.unknown,
            self._coordinators.pause,
            UNKNOWN_TOPIC_READS,
        )
        try:
            self._check(answer.error_code, f"sending offsets of group {name!r}")
        except ProducerFencedError as error:
            return error
        if answer.unknown:
            missing = ", ".join(map(str, answer.unknown))
            what = f"transactional id {self._id!r}, sending offsets of group {name!r}: {missing}"
            unknown = broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what} does not exist")
            self._coordinators.on_unknown(str(unknown))
            raise unknown
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
        """The identity with which another client can end the open transaction."""
        return PreparedTransaction(*self._txn_identity())

    def _txn_identity(self) -> TxnIdentity:
        return TxnIdentity(self._id, self._identity.producer_id, self._identity.epoch)

    def _check(self, code: int, what: str) -> None:
        if not code:
            return
        error = broker_error(code, f"transactional id {self._id!r}, {what}")
        if isinstance(error, ProducerFencedError) and code != _ID_EXPIRED and not self.v2:
            error.add_note(
                "or the transaction was open for longer than transaction.timeout.ms: without "
                "transactions v2 its coordinator then fences the producer"
            )
        raise error
