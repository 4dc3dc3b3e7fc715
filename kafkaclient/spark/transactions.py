"""The transactions of an exactly-once write's tasks, as their coordinators report them."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

from kafkaclient.admin import TxnState
from kafkaclient.errors import TransactionLostError
from kafkaclient.spark.commit import State, TransactionStatus
from kafkaclient.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkaclient.admin import Admin
    from kafkaclient.wire.transaction_states import TransactionDescription

_MAX_REQUESTS = 200  # in flight; with thousands, responses would time out

_STATES = {
    TxnState.ONGOING: State.OPEN,
    TxnState.PREPARE_COMMIT: State.COMMITTED,
    TxnState.COMPLETE_COMMIT: State.COMMITTED,
    TxnState.PREPARE_ABORT: State.ABORTED,
    TxnState.PREPARE_EPOCH_FENCE: State.ABORTED,
    TxnState.COMPLETE_ABORT: State.ABORTED,
}  # State.UNKNOWN: EMPTY, DEAD and UNKNOWN, which do not tell how the transaction ended


class KafkaTransactions:
    """The transactions with the ids ``{query_name}-{batch}-{hex}``. ``clock`` is the wall clock in
    seconds: a transaction's start is in wall clock time."""

    def __init__(
        self, admin: Admin, query_name: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._admin = admin
        self._clock = clock
        self._request_slots = asyncio.Semaphore(_MAX_REQUESTS)
        self._query_name = query_name

    async def states(
        self, prepared: Sequence[PreparedTransaction]
    ) -> dict[PreparedTransaction, TransactionStatus]:
        described = await self._describe([each.transactional_id for each in prepared])
        # If this machine's clock is behind, the latest start time serves as the current time.
        begun = [each.started_ms for each in described.values() if each is not None]
        now_ms = max([self._clock() * 1000, *begun])
        return {each: _status(each, described[each.transactional_id], now_ms) for each in prepared}

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        async with self._request_slots:
            try:
                await self._admin.end_transaction(prepared, commit=commit)
            except TransactionLostError:
                return False
        return True

    async def _describe(self, names: Sequence[str]) -> dict[str, TransactionDescription | None]:
        async def describe(name: str) -> dict[str, TransactionDescription | None]:
            async with self._request_slots:
                return await self._admin.describe_transactions([name])

        described = await asyncio.gather(*map(describe, names))
        return {name: found for each in described for name, found in each.items()}

    async def open_up_to(self, batch: int) -> list[PreparedTransaction]:
        name = re.compile(re.escape(self._query_name) + r"-(\d+)-[0-9a-f]{32}")
        prefix = f"{self._query_name}-"
        listed = await self._admin.list_transactions(prefix, states=[TxnState.ONGOING])
        found = [name.fullmatch(each.transactional_id) for each in listed]
        old = [match[0] for match in found if match and int(match[1]) <= batch]
        described = await self._describe(old)
        return [
            PreparedTransaction(transactional_id, now.producer_id, now.producer_epoch)
            for transactional_id, now in described.items()
            if now is not None and now.state is TxnState.ONGOING
        ]


def _status(
    prepared: PreparedTransaction, found: TransactionDescription | None, now_ms: float
) -> TransactionStatus:
    if found is None or found.producer_id != prepared.producer_id:
        return TransactionStatus(State.UNKNOWN)
    state = _STATES.get(found.state, State.UNKNOWN)
    if state is not State.OPEN:
        return TransactionStatus(state)
    return TransactionStatus(state, max(0.0, 1 - (now_ms - found.started_ms) / found.timeout_ms))
