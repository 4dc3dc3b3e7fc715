"""Commits or aborts the transactions of a batch of an exactly-once write.

The driver first writes a :class:`Decision`: the set of transactions to commit. After a crash the
same set is committed. A decision may be revoked only while none of its transactions is committed,
and none ever can be.

This module does no I/O: :class:`Ledger` and :class:`Transactions` are its interfaces.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkaclient.errors import TransactionLostError
from kafkaclient.spark.decisions import check_contents, check_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkaclient.spark.decisions import Decision
    from kafkaclient.types import PreparedTransaction

_log = logging.getLogger(__name__)

# Fractions of the transaction timeout:
_MIN_LEFT_TO_DECIDE = 0.1  # below it, no new decision is written
_MIN_LEFT_TO_COMMIT = 0.05  # below it, an uncommitted decision is revoked
_CLEAN_UP_TIMEOUT_S = 30.0  # for aborting the transactions of lost attempts


class State(Enum):
    """The state of a transaction. Its transactional id is used only once."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown to its coordinator"
    """It may have been committed."""


class TransactionStatus(NamedTuple):
    """A transaction's status, from its coordinator."""

    state: State
    time_left: float = 0.0
    """Remaining fraction of the timeout while the transaction is open, 0 to 1."""


class Ledger(Protocol):
    """Durable storage of one query's decisions."""

    async def last(self) -> Decision | None:
        """The last decision. Does not fence other runs."""

    async def is_writing(self) -> bool:
        """Whether any run is writing a decision that :meth:`last` does not return yet."""

    async def claim(self) -> Decision | None:
        """Fence earlier runs, so that they can no longer write, and return the last decision."""

    async def write(self, decision: Decision) -> None:
        """Write a decision, after :meth:`claim`. It is durable on return, perhaps also after an
        error."""


class Transactions(Protocol):
    """The transactions of one query's tasks. Each transactional id is used only once."""

    async def states(
        self, prepared: Sequence[PreparedTransaction]
    ) -> Mapping[PreparedTransaction, TransactionStatus]: ...

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        """Commit or abort the transaction. Returns whether it has ended in this way, now or
        earlier; perhaps False after aborting a timed-out one."""

    async def open_up_to(self, batch: int) -> list[PreparedTransaction]:
        """The open transactions of all batches up to this one."""


async def commit_batch(
    ledger: Ledger, transactions: Transactions, wanted: Decision, *, accept_loss: bool = False
) -> None:
    """Make each row of the batch visible exactly once, as ``wanted`` or as decided before.

    Raises:
        TransactionLostError: a transaction is not open any more, or is about to time out. If
            the batch is not decided, none of its rows is visible, and a restarted query repeats
            it. If the batch is decided, some rows may be visible while others are lost; with
            ``accept_loss`` this is logged as an error, and the query continues.
        CheckpointMismatchError: the batch was decided with other contents, or a later batch is
            decided. With ``accept_loss`` the decided contents count.
        ProducerFencedError: another run of the query has claimed the ledger.
    """
    last = await ledger.last()
    check_order(last, wanted)
    if last is None or last.batch < wanted.batch or not last.done:
        last = await ledger.claim()
        check_order(last, wanted)
    if last is not None and last.batch < wanted.batch:
        # Spark has moved on. If this decision is not marked as done, its commits are not complete.
        await _commit_decided(ledger, transactions, last, accept_loss=accept_loss)
        last = None
    elif last is not None and not last.done and await _try_revoke(transactions, last):
        last = None  # this batch was decided, but nothing of it is or becomes visible
    decision = last or await _decide(ledger, transactions, wanted)
    await _commit_decided(ledger, transactions, decision, accept_loss=accept_loss)
    await _abort_leftovers(transactions, decision)
    # Last, because the decided rows must be complete even if the batch has other rows now.
    check_contents(decision, wanted, accept_loss=accept_loss)


async def abort_batch(
    ledger: Ledger,
    transactions: Transactions,
    batch: int,
    prepared: tuple[PreparedTransaction, ...],
) -> None:
    """Abort the transactions that are not decided. Spark also calls this after a failed commit,
    which may have written a decision. While a decision is being written, nothing is aborted."""
    if await ledger.is_writing():
        _log.warning(
            "batch %d: a decision is being written, so its transactions are not aborted. They stay "
            "open until the batch is repeated or they time out",
            batch,
        )
        return
    last = await ledger.last()
    decided = {*last.transactions} if last is not None and last.batch == batch else set()
    await _end(transactions, set(prepared) - decided, commit=False)


async def _decide(ledger: Ledger, transactions: Transactions, wanted: Decision) -> Decision:
    prepared = wanted.transactions
    statuses = await transactions.states(prepared)
    lost = [each for each in prepared if statuses[each].state is not State.OPEN]
    if lost:
        raise _batch_lost_error(wanted, f"{_names_and_verb(lost)} not open any more")
    late = [each for each in prepared if statuses[each].time_left < _MIN_LEFT_TO_DECIDE]
    if late:
        limit = f"{_MIN_LEFT_TO_DECIDE:.0%} of kafka.transaction.timeout.ms by this machine's clock"
        raise _batch_lost_error(
            wanted, f"{_names_and_verb(late)} about to time out, within {limit}"
        )
    decision = replace(wanted, done=not prepared)
    await ledger.write(decision)
    if not decision.done and await _try_revoke(transactions, decision):
        raise _batch_lost_error(wanted, "transactions timed out while the decision was written")
    return decision


def _batch_lost_error(wanted: Decision, why: str) -> TransactionLostError:
    return TransactionLostError(
        f"batch {wanted.batch} is not committed, and nothing of it is visible: {why}. Did the "
        "batch take longer than kafka.transaction.timeout.ms? Restart the query to repeat the batch"
    )


async def _try_revoke(transactions: Transactions, decision: Decision) -> bool:
    """Revoke the decision if it cannot be committed completely in time. Returns whether it did."""
    statuses = await transactions.states(decision.transactions)
    found = statuses.values()
    if any(state not in (State.OPEN, State.ABORTED) for state, _ in found):
        return False  # it may be visible in part: commit the other transactions
    if all(state is State.OPEN and left >= _MIN_LEFT_TO_COMMIT for state, left in found):
        return False
    still_open = [each for each, (state, _) in statuses.items() if state is State.OPEN]
    await _end(transactions, still_open, commit=False)
    # Another run may have committed a transaction meanwhile.
    statuses = await transactions.states(decision.transactions)
    return all(each.state is State.ABORTED for each in statuses.values())


async def _commit_decided(
    ledger: Ledger, transactions: Transactions, decision: Decision, *, accept_loss: bool
) -> None:
    """Commit the decided transactions, and mark the decision as done."""
    if decision.done:
        return
    decided = decision.transactions
    ended = await _end(transactions, decided, commit=True)
    lost = [each for each, committed in zip(decided, ended, strict=True) if not committed]
    if lost:
        what = (
            f"batch {decision.batch} was decided, but {_names_and_verb(lost)} lost before the "
            "commit: their rows are missing. The rows of the other "
            f"{len(decided) - len(lost)} are visible"
        )
        if not accept_loss:
            raise TransactionLostError(
                f"{what}. The query was down for longer than kafka.transaction.timeout.ms. With "
                "failOnDataLoss=false it continues without the lost rows"
            )
        _log.error("%s", what)
    await ledger.write(replace(decision, done=True))


async def _abort_leftovers(transactions: Transactions, decision: Decision) -> None:
    """Abort the undecided transactions of this batch and earlier ones. No run can decide them any
    more: later runs read that this batch is done, and earlier ones were fenced before it was
    decided. If the abort fails, the transactions time out."""
    try:
        async with asyncio.timeout(_CLEAN_UP_TIMEOUT_S):
            left = set(await transactions.open_up_to(decision.batch)) - {*decision.transactions}
            await _end(transactions, left, commit=False)
    except Exception as error:  # noqa: BLE001 - the batch is committed and must not fail now
        _log.warning(
            "batch %d is committed, but transactions of lost attempts could not be aborted. They "
            "block read-committed consumers until the next batch or until they time out: %r",
            decision.batch,
            error,
        )


async def _end(
    transactions: Transactions, prepared: Iterable[PreparedTransaction], *, commit: bool
) -> list[bool]:
    """Commit or abort all of them, then raise the first error."""
    ended = await asyncio.gather(
        *(transactions.end(each, commit=commit) for each in prepared), return_exceptions=True
    )
    results = [each for each in ended if not isinstance(each, BaseException)]
    if len(results) < len(ended):
        raise next(each for each in ended if isinstance(each, BaseException))
    return results


def _names_and_verb(lost: list[PreparedTransaction]) -> str:
    """Such as ``transactions a, b are``."""
    names = ", ".join(each.transactional_id for each in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    return f"transaction{'s' * (len(lost) > 1)} {names}{more} {'are' if len(lost) > 1 else 'is'}"
