"""Decides which transactions make up a batch of an exactly-once write, and commits them.

Spark marks a batch as committed after the sink's commit has returned. A batch that Spark has not
marked is repeated, perhaps with other tasks and partitions. So the driver writes one durable
decision before anything of the batch becomes visible: the set of transactions to commit. After a
crash the same set is committed. A decision may be revoked only while none of its transactions is
committed, and none ever can be.

A repeated batch reads the same source offsets. If the checkpoint was restored or copied, a batch
with the same number may have other rows. The decision stores its :class:`Contents`, so that this is
detected as an error.

This module does no I/O: :class:`Ledger` and :class:`Transactions` are its interfaces.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkaclient.errors import CheckpointMismatchError, TransactionLostError
from kafkaclient.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Contents",
    "Decision",
    "Ledger",
    "State",
    "TransactionStatus",
    "Transactions",
    "abort_batch",
    "commit_batch",
]

_log = logging.getLogger(__name__)

# Fractions of the transaction timeout:
_MIN_LEFT_TO_DECIDE = 0.1  # below it, no new decision is written
_MIN_LEFT_TO_COMMIT = 0.05  # below it, an uncommitted decision is revoked
_CLEAN_UP_TIMEOUT_S = 30.0  # for aborting the transactions of lost attempts


@dataclass(frozen=True, slots=True)
class Contents:
    """Distinguishes a repeated batch from another batch with the same number."""

    rows: int
    checksum: int
    """Equal for equal rows, regardless of their order and of the number of tasks."""
    target: str | None
    """The topic of all rows. None: each row names its topic."""
    end_offsets: str | None = None
    """The batch's end offsets in its sources, from Spark's checkpoint. None: not readable."""

    def difference(self, now: Contents) -> str | None:
        """How the batch of ``now`` differs from the decided one. None if it is the same batch. If
        both have end offsets, only these are compared: a nondeterministic query (``rand()``) may
        yield other rows for the same input, and committing the decided rows loses no input."""
        if self.target != now.target:
            return f"it was decided for {_topic(self.target)} and is for {_topic(now.target)} now"
        if self.end_offsets is not None and now.end_offsets is not None:
            if self.end_offsets == now.end_offsets:
                return None
            return f"its source's end offsets are {now.end_offsets} now"
        if (self.rows, self.checksum) == (now.rows, now.checksum):
            return None
        return (
            f"it was decided with {self.rows} rows (checksum {self.checksum:x}) and has {now.rows} "
            f"rows (checksum {now.checksum:x}) now"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """Exactly these transactions make up batch ``batch``. ``done``: all are committed."""

    batch: int
    transactions: tuple[PreparedTransaction, ...]
    done: bool = False
    contents: Contents | None = None
    """None: written by a release that did not store contents."""

    def to_json(self) -> bytes:
        names = [each.transactional_id for each in self.transactions]
        prefix = os.path.commonprefix(names)  # noqa: RUF071 - not paths
        fields = {
            "batch": self.batch,
            "done": self.done,
            "contents": self.contents and asdict(self.contents),
            "prefix": prefix,
            "transactions": [
                (name[len(prefix) :], *each[1:])
                for name, each in zip(names, self.transactions, strict=True)
            ],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        """Decode :meth:`to_json`. Also accepts the older format without prefix and contents."""
        read = json.loads(text)
        prefix = read.get("prefix", "")
        transactions = tuple(
            PreparedTransaction(prefix + name, *rest) for name, *rest in read["transactions"]
        )
        contents = Contents(**read["contents"]) if read.get("contents") else None
        return cls(read["batch"], transactions, read["done"], contents)


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
        ...

    async def is_writing(self) -> bool:
        """Whether any run is writing a decision that :meth:`last` does not return yet."""
        ...

    async def claim(self) -> Decision | None:
        """Fence earlier runs, so that they can no longer write, and return the last decision."""
        ...

    async def write(self, decision: Decision) -> None:
        """Write a decision, after :meth:`claim`. It is durable on return, perhaps also after an
        error."""
        ...


class Transactions(Protocol):
    """The transactions of one query's tasks. Each transactional id is used only once."""

    async def states(
        self, prepared: Sequence[PreparedTransaction]
    ) -> Mapping[PreparedTransaction, TransactionStatus]: ...

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        """Commit or abort the transaction. Returns whether it has ended in this way, now or
        earlier; perhaps False after aborting a timed-out one."""
        ...

    async def open_up_to(self, batch: int) -> list[PreparedTransaction]:
        """The open transactions of all batches up to this one."""
        ...


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
    decision = await ledger.last()
    _check_order(decision, wanted)
    if decision is None or decision.batch < wanted.batch or not decision.done:
        decision = await ledger.claim()
        _check_order(decision, wanted)
    if decision is not None and decision.batch < wanted.batch:
        await _commit_decided(ledger, transactions, decision, accept_loss=accept_loss)
        decision = None
    elif decision is not None and not decision.done and await _try_revoke(transactions, decision):
        decision = None
    if decision is None:
        decision = await _decide(ledger, transactions, wanted)
    await _commit_decided(ledger, transactions, decision, accept_loss=accept_loss)
    await _abort_leftovers(transactions, decision)
    _check_contents(decision, wanted, accept_loss=accept_loss)


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


def _check_order(last: Decision | None, wanted: Decision) -> None:
    if last is not None and last.batch > wanted.batch:
        raise CheckpointMismatchError(
            f"batch {wanted.batch} is not committed: batch {last.batch} of this query has been "
            f"decided{_up_to(last)}. The query runs twice, or an old checkpoint was restored. Stop "
            f"all runs but one. {_RECOVERY_ADVICE}"
        )


def _check_contents(decided: Decision, wanted: Decision, *, accept_loss: bool) -> None:
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


_RECOVERY_ADVICE = (
    "Restore the newest checkpoint, or give the query a new checkpointLocation and start it at the "
    "decided end offsets."
)


def _up_to(decision: Decision) -> str:
    contents = decision.contents
    if contents is None or contents.end_offsets is None:
        return ""
    return f", up to the end offsets {contents.end_offsets}"


async def _decide(ledger: Ledger, transactions: Transactions, wanted: Decision) -> Decision:
    prepared = wanted.transactions
    statuses = await transactions.states(prepared)
    lost = [each for each in prepared if statuses[each].state is not State.OPEN]
    if lost:
        raise _not_committed(wanted, f"{_transaction_names(lost)} not open any more")
    late = [each for each in prepared if statuses[each].time_left < _MIN_LEFT_TO_DECIDE]
    if late:
        limit = f"{_MIN_LEFT_TO_DECIDE:.0%} of kafka.transaction.timeout.ms by this machine's clock"
        names = _transaction_names(late)
        raise _not_committed(wanted, f"{names} about to time out, within {limit}")
    decision = replace(wanted, done=not prepared)
    await ledger.write(decision)
    if not decision.done and await _try_revoke(transactions, decision):
        raise _not_committed(wanted, "transactions timed out while the decision was written")
    return decision


def _not_committed(wanted: Decision, why: str) -> TransactionLostError:
    return TransactionLostError(
        f"batch {wanted.batch} is not committed, and nothing of it is visible: {why}. Did the "
        "batch take longer than kafka.transaction.timeout.ms? Restart the query to repeat the batch"
    )


async def _try_revoke(transactions: Transactions, decision: Decision) -> bool:
    """Revoke the decision if it cannot be committed completely in time. Returns whether it did."""
    statuses = await transactions.states(decision.transactions)
    if not {each.state for each in statuses.values()} <= {State.OPEN, State.ABORTED}:
        return False  # it may be visible in part: commit the other transactions
    still_open = [each for each, (state, _) in statuses.items() if state is State.OPEN]
    if len(still_open) == len(statuses) and all(
        each.time_left >= _MIN_LEFT_TO_COMMIT for each in statuses.values()
    ):
        return False
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
            f"batch {decision.batch} was decided, but {_transaction_names(lost)} lost before the "
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
    """Abort the undecided transactions of this batch and earlier ones: they can never be decided
    any more. If this fails, they time out."""
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


def _topic(target: str | None) -> str:
    return "the topics that rows name" if target is None else f"topic {target}"


def _transaction_names(lost: list[PreparedTransaction]) -> str:
    names = ", ".join(each.transactional_id for each in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    return f"transaction{'s' * (len(lost) > 1)} {names}{more} {'are' if len(lost) > 1 else 'is'}"
