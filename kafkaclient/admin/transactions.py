"""The requests for transactions of other clients: list, describe, end, fence (KIP-664, KIP-939)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import KafkaError, TransactionLostError
from kafkaclient.wire.api_versions import ApiVersionsCall
from kafkaclient.wire.transaction_states import (
    DescribeTransactionsCall,
    ListTransactionsCall,
    TxnState,
)
from kafkaclient.wire.transactions import (
    CoordinatorKind,
    EndTxnCall,
    EndTxnV2Call,
    InitProducerIdCall,
    TxnIdentity,
)

if TYPE_CHECKING:
    from kafkaclient.admin.session import Session
    from kafkaclient.cluster.coordinator import Coordinators
    from kafkaclient.types import PreparedTransaction
    from kafkaclient.wire.transaction_states import (
        ListedTransactions,
        TransactionDescription,
        TransactionListing,
    )

__all__ = ["TransactionRequests"]

_UNKNOWN_ID = 105  # TRANSACTIONAL_ID_NOT_FOUND
_LOST = {
    47: "the producer was fenced: the transaction timed out, or another producer was started with "
    "the transactional id",
    48: "the transaction ended the other way, for example after a timeout",
    49: "the coordinator has another producer id or none for the transactional id: the id expired "
    "(transactional.id.expiration.ms), or belongs to another cluster",
    59: "the coordinator no longer knows the producer id",
}
_LOST[90] = _LOST[47]

# Brokers also use the transaction timeout as the time limit for the write to their own log. With
# Java's earlier value of 1 ms the replicated write fails (KAFKA-16047).
_FENCING_TIMEOUT_MS = 30_000


class TransactionRequests:
    """The requests for transactions. Each runs within the time limit of the session."""

    def __init__(self, session: Session, coordinators: Coordinators) -> None:
        self._session = session
        self._coordinators = coordinators

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        kind, name = CoordinatorKind.TRANSACTION, prepared.transactional_id
        v2 = (await self._coordinators.call(kind, name, ApiVersionsCall())).transactions_v2
        call = (EndTxnV2Call if v2 else EndTxnCall)(TxnIdentity(*prepared), commit)
        answer = await self._coordinators.call(kind, name, call, final=frozenset(_LOST))
        code = answer.error_code
        if code:
            what = f"{'committing' if commit else 'aborting'} the transaction of {name!r}"
            error = broker_error(code, what, advice=_advice(code, "Write", name))
            if code not in _LOST:
                raise error
            lost = TransactionLostError(f"{what}: {_LOST[code]} ({error.name})")
            lost.code, lost.name = code, error.name
            raise lost

    async def listed(self, states: tuple[TxnState, ...]) -> list[TransactionListing]:
        call = ListTransactionsCall(states)

        async def ask(node: int) -> ListedTransactions:
            answer = await self._session.once(call, node)
            if answer.error_code:
                raise broker_error(answer.error_code, f"listing the transactions of broker {node}")
            return answer

        async def attempt() -> list[ListedTransactions]:
            brokers = (await self._session.metadata(())).brokers
            return await asyncio.gather(*(ask(broker.node_id) for broker in brokers))

        answers = await self._session.until_answered(attempt)
        return [listing for answer in answers for listing in answer.transactions]

    async def describe(self, name: str) -> TransactionDescription | None:
        call = DescribeTransactionsCall(name)
        answer = await self._coordinators.call(CoordinatorKind.TRANSACTION, name, call)
        if answer.error_code and answer.error_code != _UNKNOWN_ID:
            what = f"describing the transactional id {name!r}"
            advice = _advice(answer.error_code, "Describe", name)
            raise broker_error(answer.error_code, what, advice=advice)
        return answer.description

    async def fence(self, name: str) -> KafkaError | None:
        call = InitProducerIdCall(name, _FENCING_TIMEOUT_MS)
        try:
            code = (
                await self._coordinators.call(CoordinatorKind.TRANSACTION, name, call)
            ).error_code
        except KafkaError as error:
            return error
        if not code:
            return None
        what = f"fencing producers with the transactional id {name!r}"
        return broker_error(code, what, advice=_advice(code, "Write", name))

    def note_last_error(self) -> None:
        """Remember the last error of a coordinator request for the message of AdminTimeoutError."""
        if self._coordinators.last_error is not None:
            self._session.note_error(self._coordinators.last_error)


def _advice(code: int, operation: str, name: str) -> str | None:
    return denied(code, operation, name, by_itself=True)
