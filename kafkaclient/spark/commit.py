"""Decides once per batch which tasks' transactions count; commits these, aborts the rest.

The driver first writes a :class:`Decision`: the set of transactions to commit. After a crash the
same set is committed. A decision may be revoked only while none of its transactions is committed,
and none ever can be.

This module does no I/O of its own: the ledger and the transactions do it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkaclient.errors import CheckpointMismatchError, TransactionLostError
from kafkaclient.spark.ledger import State
from kafkaclient.spark.offsets import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.spark.ledger import Decision, KafkaLedger, KafkaTransactions
    from kafkaclient.types import PreparedTransaction

_log = logging.getLogger(__name__)

# Fractions of the transaction timeout:
_MIN_LEFT_TO_DECIDE = 0.1  # below it, no new decision is written
_MIN_LEFT_TO_COMMIT = 0.05  # below it, an uncommitted decision is revoked
_CLEAN_UP_TIMEOUT_S = 30.0  # for aborting the transactions of lost attempts

_RECOVERY_ADVICE = (
    "Restore the newest checkpoint, or give the query a new checkpointLocation and start it at the "
    "decided end offsets."
)


async def commit_batch(
    ledger: KafkaLedger,
    transactions: KafkaTransactions,
    wanted: Decision,
    *,
    accept_loss: bool = False,
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
    _check_order(last, wanted)
    if last is None or last.batch < wanted.batch or not last.done:
        last = await ledger.claim()
        _check_order(last, wanted)
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
    _check_contents(decision, wanted, accept_loss=accept_loss)


async def abort_batch(
    ledger: KafkaLedger,
    transactions: KafkaTransactions,
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


async def _decide(
    ledger: KafkaLedger, transactions: KafkaTransactions, wanted: Decision
) -> Decision:
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


async def _try_revoke(transactions: KafkaTransactions, decision: Decision) -> bool:
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
    ledger: KafkaLedger, transactions: KafkaTransactions, decision: Decision, *, accept_loss: bool
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


async def _abort_leftovers(transactions: KafkaTransactions, decision: Decision) -> None:
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
    transactions: KafkaTransactions, prepared: Iterable[PreparedTransaction], *, commit: bool
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
    names = listed([each.transactional_id for each in lost])
    return f"transaction{'s' * (len(lost) > 1)} {names} {'are' if len(lost) > 1 else 'is'}"


def _check_order(last: Decision | None, wanted: Decision) -> None:
    """Raise CheckpointMismatchError if a later batch than the wanted one is decided."""
    if last is not None and last.batch > wanted.batch:
        raise CheckpointMismatchError(
            f"batch {wanted.batch} is not committed: batch {last.batch} of this query has been "
            f"decided{_up_to(last)}. The query runs twice, or an old checkpoint was restored. Stop "
            f"all runs but one. {_RECOVERY_ADVICE}"
        )


def _check_contents(decided: Decision, wanted: Decision, *, accept_loss: bool) -> None:
    """Raise CheckpointMismatchError, or log it, if the decided batch is another one."""
    if decided.contents is None or wanted.contents is None:
        return
    difference = decided.contents.difference(wanted.contents)
    if difference is None:
        return
    what = (
        f"batch {wanted.batch} of this query was decided before, with {decided.contents.rows} rows"
        f"{_up_to(decided)}; these rows are committed. The batch that Spark repeats now is "
        f"different: {difference}"
    )
    if accept_loss:
        _log.error("%s. failOnDataLoss=false: the repeated batch's rows are not written", what)
        return
    raise CheckpointMismatchError(
        f"{what}. An old checkpoint was restored, a copy of it is in use, the target was changed, "
        "or (if the end offsets cannot be read) the query yields other rows for the same input. "
        f"{_RECOVERY_ADVICE} failOnDataLoss=false continues with the decided rows: rows only in "
        "the repeated batch are lost, and rows that later batches contain again are duplicated"
    )


def _up_to(decision: Decision) -> str:
    contents = decision.contents
    if contents is None or contents.end_offsets is None:
        return ""
    return f", up to the end offsets {contents.end_offsets}"
