"""The methods of :class:`~kafkaclient.admin.Admin` for transactions of other clients."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from contextlib import AbstractAsyncContextManager

    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.admin.transactions import TransactionRequests
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import PreparedTransaction
    from kafkaclient.wire.transaction_states import (
        TransactionDescription,
        TransactionListing,
        TxnState,
    )

__all__ = ["TransactionAdmin"]


class TransactionAdmin:
    """The transaction methods of :class:`~kafkaclient.admin.Admin`."""

    async def end_transaction(
        self,
        prepared: PreparedTransaction,
        *,
        commit: bool = True,
        timeout_s: float | None = None,
    ) -> None:
        """Commit or abort a transaction that another producer has prepared
        (:meth:`kafkaclient.Producer.prepare_transaction`). When this call returns, the outcome is
        decided and cannot change. The call may be repeated, also after a timeout.

        Raises:
            TransactionLostError: the transaction is no longer open, and its coordinator does not
                know that it ended this way: it timed out, its producer was fenced, or it ended the
                other way. The coordinator of a fenced producer cannot tell how it ended before.
            AuthorizationError: this client may not write under the transactional id.
        """
        how = "committing" if commit else "aborting"
        what = f"{how} the transaction of {prepared.transactional_id!r}"
        async with self._coordinator_operation(what, timeout_s) as requests:
            await requests.end(prepared, commit=commit)

    async def list_transactions(
        self,
        prefix: str = "",
        *,
        states: Iterable[TxnState] = (),
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that begin with ``prefix``, in order, each with the state of its
        last transaction. ``states``: only transactions in these states (default: all). Ids that
        this client may not describe are missing. Asks every broker (KIP-664; brokers from 3.0)."""
        async with self._operation("listing transactions", timeout_s) as running:
            listed = await running.transactions.listed(tuple(states))
        return sorted(one for one in listed if one.transactional_id.startswith(prefix))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription | None]:
        """The transactions of these transactional ids, by id; None for an unknown id. Raises
        AuthorizationError for an id that this client may not describe. Needs brokers from 3.0."""
        names = tuple(dict.fromkeys(transactional_ids))
        async with self._coordinator_operation("describing transactions", timeout_s) as requests:
            descriptions = await asyncio.gather(*map(requests.describe, names))
        return dict(zip(names, descriptions, strict=True))

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Fence the current producers of these transactional ids. Their open transactions are
        aborted, and their next requests fail. Returns by id None or the error (Java:
        ``Admin.fenceProducers``)."""
        names = tuple(dict.fromkeys(transactional_ids))
        async with self._coordinator_operation("fencing producers", timeout_s) as requests:
            outcomes = await asyncio.gather(*map(requests.fence, names))
        return dict(zip(names, outcomes, strict=True))

    @asynccontextmanager
    async def _coordinator_operation(
        self, what: str, timeout_s: float | None
    ) -> AsyncIterator[TransactionRequests]:
        async with self._operation(what, timeout_s) as running:
            try:
                yield running.transactions
            finally:
                running.transactions.note_last_error()

    def _operation(
        self, what: str, timeout_s: float | None = None
    ) -> AbstractAsyncContextManager[RunningAdmin]:
        raise NotImplementedError
