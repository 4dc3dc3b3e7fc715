"""The methods of :class:`~kafkaclient.admin.Admin` about transactions of other clients."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from contextlib import AbstractAsyncContextManager

    from kafkaclient.admin.opened import Opened
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
    """A part of :class:`~kafkaclient.admin.Admin`."""

    async def end_transaction(
        self,
        prepared: PreparedTransaction,
        *,
        commit: bool = True,
        timeout_s: float | None = None,
    ) -> None:
        """Commit, or abort, a transaction that another producer has prepared
        (:meth:`kafkaclient.Producer.prepare_transaction`). When this returns it is done, or about
        to be, and cannot become otherwise; it may be repeated, after a time-out too.

        Raises:
            TransactionLostError: it is not open any more, and was not ended this way as far as its
                coordinator knows: it has timed out, was fenced, or was ended the other way. Of a
                producer that was fenced it cannot be told whether it had been ended before.
            AuthorizationError: this client may not write under its transactional id.
        """
        how = "committing" if commit else "aborting"
        what = f"{how} the transaction of {prepared.transactional_id!r}"
        async with self._noting(what, timeout_s) as requests:
            await requests.end(prepared, commit=commit)

    async def list_transactions(
        self,
        prefix: str = "",
        *,
        states: Iterable[TxnState] = (),
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that begin with ``prefix``, in order, and where the last
        transaction of each stands; ``states``: only those (default: all). What this client may not
        describe is missing. Every broker is asked (KIP-664; brokers from 3.0 on)."""
        async with self._operation("listing transactions", timeout_s) as opened:
            listed = await opened.transactions.listed(tuple(states))
        return sorted(told for told in listed if told.transactional_id.startswith(prefix))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription | None]:
        """What is known of transactional ids, as given; None for one that is not known. Raises
        AuthorizationError for one that this client may not describe. Brokers from 3.0 on."""
        names = tuple(dict.fromkeys(transactional_ids))
        async with self._noting("describing transactions", timeout_s) as requests:
            told = await asyncio.gather(*map(requests.describe, names))
        return dict(zip(names, told, strict=True))

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Have no producer of now go on with these transactional ids: what it has open is aborted,
        what it asks for next is refused. By id None, or the error: AuthorizationError, say (Java:
        ``Admin.fenceProducers``)."""
        names = tuple(dict.fromkeys(transactional_ids))
        async with self._noting("fencing producers", timeout_s) as requests:
            outcomes = await asyncio.gather(*map(requests.fence, names))
        return dict(zip(names, outcomes, strict=True))

    @asynccontextmanager
    async def _noting(
        self, what: str, timeout_s: float | None
    ) -> AsyncIterator[TransactionRequests]:
        async with self._operation(what, timeout_s) as opened:
            try:
                yield opened.transactions
            finally:
                opened.transactions.note()

    def _operation(
        self, what: str, timeout_s: float | None = None
    ) -> AbstractAsyncContextManager[Opened]:
        raise NotImplementedError
