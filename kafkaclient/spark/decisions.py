"""When the transactions of a streaming write's tasks are committed: the decision, and its order.

Spark commits a batch by itself when the sink's commit has returned, and repeats one that it has
not committed, perhaps with other tasks and other partitions. So a batch is decided once, durably,
and before anything of it becomes visible: from then on there is one set of transactions that will
be committed, whatever dies when. A decision may only be taken back while it is certain that nothing
of it was committed, and that nothing of it ever can be.

A repeated batch reads the same offsets of its source. If the checkpoint was put back or copied, the
number of the batch is the same and its rows are others: the decision keeps what it decided
(:class:`Contents`), and a batch with other contents is an error.

Nothing here does I/O: :class:`Ledger` and :class:`Transactions` say what they must promise.
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
    "Seen",
    "State",
    "Transactions",
    "abort_batch",
    "commit_batch",
]

_log = logging.getLogger(__name__)

_LEFT_TO_DECIDE = 0.1  # part of each transaction's time-out that a new decision needs
_LEFT_TO_COMMIT = 0.05  # part below which a decision of which nothing is committed is taken back
_CLEAN_UP_S = 30.0  # how long transactions of lost attempts are looked for and aborted


@dataclass(frozen=True, slots=True)
class Contents:
    """What tells a repeated batch from another batch with the same number."""

    rows: int
    checksum: int
    """The same for the same rows, in whatever order and number of tasks."""
    target: str | None
    """The topic of all rows; None: each row names its own."""
    end_offsets: str | None = None
    """Where the batch ends in its sources, as Spark's checkpoint has it; None: not readable."""

    def difference(self, now: Contents) -> str | None:
        """How the repeated batch differs from the decided one; None if it is the same batch. If
        both have end offsets, only these are compared: the same input may yield other rows
        (``rand()``), and committing the decided rows loses no input."""
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
    """These transactions, and no others, are batch ``batch``; ``done``: all are committed."""

    batch: int
    transactions: tuple[PreparedTransaction, ...]
    done: bool = False
    contents: Contents | None = None
    """None: decided by a release that did not keep them."""

    def to_json(self) -> bytes:
        names = [each.transactional_id for each in self.transactions]
        prefix = os.path.commonprefix(names)  # noqa: RUF071 - these are no paths
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
        """Also what earlier releases wrote, without prefix and contents."""
        read = json.loads(text)
        prefix = read.get("prefix", "")
        transactions = tuple(
            PreparedTransaction(prefix + name, *rest) for name, *rest in read["transactions"]
        )
        contents = Contents(**read["contents"]) if read.get("contents") else None
        return cls(read["batch"], transactions, read["done"], contents)


class State(Enum):
    """What has become of a transaction whose id is used once."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown to its coordinator"
    """It may have been committed."""


class Seen(NamedTuple):
    """A transaction as its coordinator describes it."""

    state: State
    left: float = 0.0
    """The part of its time-out that is left while it is open, 0 to 1."""


class Ledger(Protocol):
    """Where decisions last. Each query has one of its own."""

    async def last(self) -> Decision | None:
        """The last decision. Fences no other run."""
        ...

    async def writing(self) -> bool:
        """Whether a decision is being written, by any run, that :meth:`last` does not show yet."""
        ...

    async def claim(self) -> Decision | None:
        """The last decision. A run that claimed before can write no more."""
        ...

    async def write(self, decision: Decision) -> None:
        """Needs :meth:`claim` before. When this has returned, the decision lasts; if it raised, it
        may last."""
        ...


class Transactions(Protocol):
    """The transactions of one query's tasks. No id is ever used for two of them."""

    async def states(
        self, prepared: Sequence[PreparedTransaction]
    ) -> Mapping[PreparedTransaction, Seen]: ...

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        """Whether it is ended this way, now or since earlier. Of one that has timed out it may not
        be known that it is aborted."""
        ...

    async def left(self, batch: int) -> list[PreparedTransaction]:
        """The open ones of all batches up to this one."""
        ...


async def commit_batch(
    ledger: Ledger, transactions: Transactions, wanted: Decision, *, accept_loss: bool = False
) -> None:
    """Have the batch visible, each row once: as ``wanted``, or as it was decided before.

    Raises:
        TransactionLostError: transactions are not open any more, or not for long enough. If the
            batch is not decided, no row of it is visible, and a restart of the query repeats it.
            If the batch is decided, some of its rows may be visible and others never will be;
            ``accept_loss`` then logs an error and goes on.
        CheckpointMismatchError: the batch was decided with other contents, or a later batch has
            been decided. ``accept_loss`` goes on with the contents that were decided.
        ProducerFencedError: another run of the query has claimed the ledger meanwhile.
    """
    decision = await ledger.last()
    _check_order(decision, wanted)
    if decision is None or decision.batch < wanted.batch or not decision.done:
        decision = await ledger.claim()
        _check_order(decision, wanted)
    if decision is not None and decision.batch < wanted.batch:
        await _complete(ledger, transactions, decision, accept_loss=accept_loss)
        decision = None
    elif decision is not None and not decision.done and await _taken_back(transactions, decision):
        decision = None
    if decision is None:
        decision = await _decide(ledger, transactions, wanted)
    await _complete(ledger, transactions, decision, accept_loss=accept_loss)
    await _clean_up(transactions, decision)
    _check_same(decision, wanted, accept_loss=accept_loss)


async def abort_batch(
    ledger: Ledger,
    transactions: Transactions,
    batch: int,
    prepared: tuple[PreparedTransaction, ...],
) -> None:
    """Abort what is not decided. Spark calls for it also when a commit has failed, which may have
    left a decision; one that is still being written protects everything."""
    if await ledger.writing():
        _log.warning(
            "batch %d: a decision is being written; its transactions are left open until the batch "
            "is repeated, or until they time out",
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
            f"decided{_up_to(last)}. The query runs twice, or its checkpoint was put back. Stop "
            f"all runs but one; {_WAYS_BACK}"
        )


def _check_same(decided: Decision, wanted: Decision, *, accept_loss: bool) -> None:
    if decided.contents is None or wanted.contents is None:
        return
    difference = decided.contents.difference(wanted.contents)
    if difference is None:
        return
    what = (
        f"batch {wanted.batch} of this query was decided before, with {decided.contents.rows} rows"
        f"{_up_to(decided)}; these rows are committed. The batch that Spark repeats is another "
        f"one: {difference}"
    )
    if accept_loss:
        _log.error("%s; failOnDataLoss=false: its rows are not written", what)
        return
    raise CheckpointMismatchError(
        f"{what}. The checkpoint was put back, a copy of it is in use, the target was changed, or "
        "(where the end offsets cannot be read) the query makes other rows of the same input; "
        f"{_WAYS_BACK} failOnDataLoss=false goes on with the rows that were decided: rows that only"
        " the batch of now has are lost, rows that later batches bring again are there twice"
    )


_WAYS_BACK = (
    "put the newest checkpoint back, or give the query a new checkpointLocation and let it start at"
    " the end offsets that were decided."
)


def _up_to(decision: Decision) -> str:
    contents = decision.contents
    if contents is None or contents.end_offsets is None:
        return ""
    return f", up to the end offsets {contents.end_offsets}"


async def _decide(ledger: Ledger, transactions: Transactions, wanted: Decision) -> Decision:
    prepared = wanted.transactions
    seen = await transactions.states(prepared)
    lost = [each for each in prepared if seen[each].state is not State.OPEN]
    if lost:
        raise _repeat(wanted, f"{_names(lost)} not open any more")
    late = [each for each in prepared if seen[each].left < _LEFT_TO_DECIDE]
    if late:
        part = f"{_LEFT_TO_DECIDE:.0%} of kafka.transaction.timeout.ms by this machine's clock"
        raise _repeat(wanted, f"{_names(late)} about to time out, within {part}")
    decision = replace(wanted, done=not prepared)
    await ledger.write(decision)
    if not decision.done and await _taken_back(transactions, decision):
        raise _repeat(wanted, "transactions timed out while the decision was written")
    return decision


def _repeat(wanted: Decision, why: str) -> TransactionLostError:
    return TransactionLostError(
        f"batch {wanted.batch} is not committed, and nothing of it is visible: {why}; did the batch"
        " take longer than kafka.transaction.timeout.ms? Restart the query, which repeats the batch"
    )


async def _taken_back(transactions: Transactions, decision: Decision) -> bool:
    """Take a decision back that cannot be carried out as a whole in time; whether that was done."""
    seen = await transactions.states(decision.transactions)
    if not {each.state for each in seen.values()} <= {State.OPEN, State.ABORTED}:
        return False  # it may be visible in part: only its other transactions can follow
    still_open = [each for each, (state, _) in seen.items() if state is State.OPEN]
    if len(still_open) == len(seen) and all(each.left >= _LEFT_TO_COMMIT for each in seen.values()):
        return False
    await _end(transactions, still_open, commit=False)
    # Another run may have committed one at this moment.
    seen = await transactions.states(decision.transactions)
    return all(each.state is State.ABORTED for each in seen.values())


async def _complete(
    ledger: Ledger, transactions: Transactions, decision: Decision, *, accept_loss: bool
) -> None:
    """Commit what is decided, and note that it is done."""
    if decision.done:
        return
    each = decision.transactions
    ended = await _end(transactions, each, commit=True)
    lost = [one for one, committed in zip(each, ended, strict=True) if not committed]
    if lost:
        what = (
            f"batch {decision.batch} was decided, and {_names(lost)} lost before being committed: "
            f"their rows are missing, those of the other {len(each) - len(lost)} are visible"
        )
        if not accept_loss:
            raise TransactionLostError(
                f"{what}. The query was away for longer than kafka.transaction.timeout.ms; with "
                "failOnDataLoss=false it goes on without them"
            )
        _log.error("%s", what)
    await ledger.write(replace(decision, done=True))


async def _clean_up(transactions: Transactions, decision: Decision) -> None:
    """Abort whatever else was written for this batch or an earlier one: it can never be decided any
    more. The batch is committed whether or not this works; what is left over times out."""
    try:
        async with asyncio.timeout(_CLEAN_UP_S):
            left = set(await transactions.left(decision.batch)) - {*decision.transactions}
            await _end(transactions, left, commit=False)
    except Exception as error:  # noqa: BLE001 - the batch is visible: nothing may fail it now
        _log.warning(
            "batch %d is committed; transactions of lost attempts could not be aborted, and hold up"
            " read-committed consumers until the next batch, or until they time out: %r",
            decision.batch,
            error,
        )


async def _end(
    transactions: Transactions, prepared: Iterable[PreparedTransaction], *, commit: bool
) -> list[bool]:
    """End all of them; one that fails keeps none of the others from being ended."""
    ended = await asyncio.gather(
        *(transactions.end(each, commit=commit) for each in prepared), return_exceptions=True
    )
    told = [each for each in ended if not isinstance(each, BaseException)]
    if len(told) < len(ended):
        raise next(each for each in ended if isinstance(each, BaseException))
    return told


def _topic(target: str | None) -> str:
    return "the topics that rows name" if target is None else f"topic {target}"


def _names(lost: list[PreparedTransaction]) -> str:
    names = ", ".join(each.transactional_id for each in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    return f"transaction{'s' * (len(lost) > 1)} {names}{more} {'are' if len(lost) > 1 else 'is'}"
