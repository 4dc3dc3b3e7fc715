"""The methods of :class:`~kafkaclient.admin.Admin` for transactions of other clients: list,
describe, end and fence them (KIP-664, KIP-939)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kafkaclient.admin.error_codes import TRANSACTIONAL_ID_NOT_FOUND
from kafkaclient.admin.running import Runnable
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import BrokerError, KafkaError, TransactionLostError
from kafkaclient.topic_names import several
from kafkaclient.wire.api_versions import ApiVersionsCall
from kafkaclient.wire.producer_ids import InitProducerIdCall
from kafkaclient.wire.transaction_states import DescribeTransactionsCall, ListTransactionsCall
from kafkaclient.wire.transactions import CoordinatorKind, EndTxnCall, EndTxnV2Call, TxnIdentity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from kafkaclient.cluster.coordinator import Coordinators
    from kafkaclient.types import PreparedTransaction
    from kafkaclient.wire.transaction_states import (
        TransactionDescription,
        TransactionListing,
        TxnState,
    )

_TRANSACTION = CoordinatorKind.TRANSACTION
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


class TransactionAdmin(Runnable):
    """The transaction methods of :class:`~kafkaclient.admin.Admin`."""

    async def end_transaction(
        self, prepared: PreparedTransaction, *, commit: bool = True, timeout_s: float | None = None
    ) -> None:
        """Commit or abort a transaction that another producer has prepared
        (:meth:`kafkaclient.Producer.prepare_transaction`). When this call returns, the outcome is
        decided and cannot change. The call may be repeated, also after a timeout.

        Raises:
            TransactionLostError: the transaction is no longer open, and its coordinator does not
                know that it ended this way: it timed out, its producer was fenced, or it ended the
                other way. The coordinator does not know how a fenced producer ended it.
            AuthorizationError: this client may not write under the transactional id.
        """
        name = prepared.transactional_id
        what = f"{'committing' if commit else 'aborting'} the transaction of {name!r}"
        async with self._coordinator_operation(what, timeout_s) as coordinators:
            features = await coordinators.call(_TRANSACTION, name, ApiVersionsCall())
            end = EndTxnV2Call if features.transactions_v2 else EndTxnCall
            call = end(TxnIdentity(*prepared), commit)
            answer = await coordinators.call(_TRANSACTION, name, call, final=frozenset(_LOST))
        code = answer.error_code
        if code:
            error = _error(code, what, "Write", name)
            if code not in _LOST:
                raise error
            lost = TransactionLostError(f"{what}: {_LOST[code]} ({error.name})")
            lost.code, lost.name = code, error.name
            raise lost

    async def list_transactions(
        self, prefix: str = "", *, states: Iterable[TxnState] = (), timeout_s: float | None = None
    ) -> list[TransactionListing]:
        """The transactional ids that begin with ``prefix``, in order, each with the state of its
        last transaction. ``states``: only transactions in these states (default: all). Ids that
        this client may not describe are missing. Sends a request to every broker (KIP-664; brokers
        from 3.0)."""
        call = ListTransactionsCall(tuple(states))
        async with self._operation("listing transactions", timeout_s) as running:
            answers = await running.session.from_each_broker(call, "listing the transactions")
        found = (listing for answer in answers for listing in answer.transactions)
        return sorted(one for one in found if one.transactional_id.startswith(prefix))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription | None]:
        """The transactions of these transactional ids, by id; None for an unknown id. Raises
        AuthorizationError for an id that this client may not describe. Needs brokers from 3.0."""
        names = several(transactional_ids, "transactional_ids")

        async def describe(name: str) -> TransactionDescription | None:
            answer = await coordinators.call(_TRANSACTION, name, DescribeTransactionsCall(name))
            if answer.error_code not in (0, TRANSACTIONAL_ID_NOT_FOUND):
                what = f"describing the transactional id {name!r}"
                raise _error(answer.error_code, what, "Describe", name)
            return answer.description

        what = "describing transactions"
        async with self._coordinator_operation(what, timeout_s) as coordinators:
            return dict(zip(names, await asyncio.gather(*map(describe, names)), strict=True))

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Fence the current producers of these transactional ids. Their open transactions are
        aborted, and their next requests fail. Returns by id None or the error (Java:
        ``Admin.fenceProducers``)."""
        names = several(transactional_ids, "transactional_ids")

        async def fence(name: str) -> KafkaError | None:
            call = InitProducerIdCall(name, _FENCING_TIMEOUT_MS)
            try:
                code = (await coordinators.call(_TRANSACTION, name, call)).error_code
            except KafkaError as error:
                return error
            what = f"fencing producers with the transactional id {name!r}"
            return _error(code, what, "Write", name) if code else None

        async with self._coordinator_operation("fencing producers", timeout_s) as coordinators:
            return dict(zip(names, await asyncio.gather(*map(fence, names)), strict=True))

    @asynccontextmanager
    async def _coordinator_operation(
        self, what: str, timeout_s: float | None
    ) -> AsyncIterator[Coordinators]:
        async with self._operation(what, timeout_s) as running:
            coordinators = running.session.coordinators
            try:
                yield coordinators
            finally:
                if coordinators.last_error is not None:
                    running.session.note_error(coordinators.last_error)


def _error(code: int, what: str, operation: str, name: str) -> BrokerError:
    return broker_error(code, what, advice=denied(code, operation, name))
