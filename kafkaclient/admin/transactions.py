"""Calls about the transactions of other clients: list, describe, end, fence (KIP-664, KIP-939)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import KafkaError, TransactionLostError
from kafkaclient.wire.codec import ApiVersionsCall, InitProducerIdCall
from kafkaclient.wire.transaction_states import (
    DescribeTransactionsCall,
    ListTransactionsCall,
    TxnState,
)
from kafkaclient.wire.transactions import CoordinatorKind, EndTxnCall, EndTxnV2Call, TxnIdentity

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
    47: "its producer was fenced: the transaction had timed out, or another producer was started "
    "with its transactional id",
    48: "it was ended the other way, as after a time-out",
    49: "its coordinator knows the transactional id with another producer id or not at all: it was "
    "forgotten (transactional.id.expiration.ms), or is another cluster's",
    59: "its producer id is not known any more",
}
_LOST[90] = _LOST[47]
_FENCING_TIMEOUT_MS = 30_000
"""No transaction will be open under the new epoch, but brokers use this as the time limit for the
write to their own log, too. Within 1 ms, as Java had it, a replicated write fails (KAFKA-16047)."""


class TransactionRequests:
    """The calls. They have no time limit of their own: :meth:`.Session.limit` sets one."""

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
            told = await self._session.once(call, node)
            if told.error_code:
                raise broker_error(told.error_code, f"listing the transactions of broker {node}")
            return told

        async def attempt() -> list[ListedTransactions]:
            brokers = (await self._session.metadata(())).brokers
            return await asyncio.gather(*(ask(broker.node_id) for broker in brokers))

        answers = await self._session.until_answered(attempt)
        return [listing for told in answers for listing in told.transactions]

    async def describe(self, name: str) -> TransactionDescription | None:
        call = DescribeTransactionsCall(name)
        told = await self._coordinators.call(CoordinatorKind.TRANSACTION, name, call)
        if told.error_code and told.error_code != _UNKNOWN_ID:
            what = f"describing the transactional id {name!r}"
            advice = _advice(told.error_code, "Describe", name)
            raise broker_error(told.error_code, what, advice=advice)
        return told.description

    async def fence(self, name: str) -> KafkaError | None:
        call = InitProducerIdCall(name, _FENCING_TIMEOUT_MS)
        try:
            told = await self._coordinators.call(CoordinatorKind.TRANSACTION, name, call)
        except KafkaError as error:
            return error
        if not told.error_code:
            return None
        what = f"fencing producers with the transactional id {name!r}"
        return broker_error(told.error_code, what, advice=_advice(told.error_code, "Write", name))

    def note(self) -> None:
        """Let the message of a timeout name the last error that a coordinator call met."""
        if self._coordinators.last_error is not None:
            self._session.answered(self._coordinators.last_error)


def _advice(code: int, operation: str, name: str) -> str | None:
    return denied(code, operation, name, by_itself=True)
