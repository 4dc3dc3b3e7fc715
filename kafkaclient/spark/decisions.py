"""When the transactions of a streaming write's tasks are committed: the decision, and its order.

Spark commits a batch by itself when the sink's commit has returned, and repeats one that it has
not committed, perhaps with other tasks and other partitions. So a batch is decided once, durably,
and before anything of it becomes visible: from then on there is one set of transactions that will
be committed, whoever dies when. The decision may only be taken back when it is certain that nothing
of it was ever committed, and never can be.

Nothing here does I/O: what a :class:`Ledger` and :class:`Transactions` must promise is said there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kafkaclient.errors import ProducerFencedError, TransactionLostError
from kafkaclient.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Decision", "Ledger", "State", "Transactions", "abort_batch", "commit_batch"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decision:
    """These transactions, and no others, are batch ``batch``; ``done``: all are committed."""

    batch: int
    transactions: tuple[PreparedTransaction, ...]
    done: bool

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        read = json.loads(text)
        transactions = tuple(PreparedTransaction(*each) for each in read["transactions"])
        return cls(read["batch"], transactions, read["done"])


class State(Enum):
    """What has become of a transaction whose id is used once."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown to its coordinator"
    """It may have been committed."""


class Ledger(Protocol):
    """Where decisions last. Each query has one of its own."""

    async def last(self) -> Decision | None:
        """The last decision. Whoever asked before can write no more."""
        ...

    async def write(self, decision: Decision) -> None:
        """When this has returned, the decision lasts; if it raised, it may."""
        ...


class Transactions(Protocol):
    """The transactions of one query's tasks. No id is ever used for two of them."""

    async def states(
        self, prepared: Iterable[PreparedTransaction]
    ) -> Mapping[PreparedTransaction, State]: ...

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        """Whether it is ended this way, now or since earlier. Of one that has timed out it may not
        be known that it is aborted."""
        ...

    async def left(self, batch: int) -> list[PreparedTransaction]:
        """The open ones of all batches up to this one."""
        ...


async def commit_batch(
    ledger: Ledger,
    transactions: Transactions,
    batch: int,
    prepared: tuple[PreparedTransaction, ...],
    *,
    accept_loss: bool = False,
) -> None:
    """Have ``batch`` visible, each row once: by ``prepared``, or by what was decided before.

    Raises:
        TransactionLostError: transactions are not open any more. Of a batch that is not decided
            nothing is visible, and a restart of the query repeats it. Of one that is, some rows are
            visible and others never will be; ``accept_loss`` goes on with a warning then.
        ProducerFencedError: another run of the query has gone further.
    """
    last = await ledger.last()
    if last is not None and last.batch > batch:
        raise ProducerFencedError(
            f"batch {batch} is not committed: batch {last.batch} of this query has been decided; "
            "is the query running twice, or was its checkpoint put back?"
        )
    if last is None or last.batch < batch:
        if last is not None:
            await _finish(ledger, transactions, last, accept_loss=accept_loss)
        decision = await _decide(ledger, transactions, batch, prepared)
    elif not last.done and await _taken_back(transactions, last):
        decision = await _decide(ledger, transactions, batch, prepared)
    else:
        decision = last
    await _finish(ledger, transactions, decision, accept_loss=accept_loss)
    # Whatever else was written for this batch or an earlier one can never be decided any more.
    await _abort(transactions, set(await transactions.left(batch)) - {*decision.transactions})


async def abort_batch(
    ledger: Ledger,
    transactions: Transactions,
    batch: int,
    prepared: tuple[PreparedTransaction, ...],
) -> None:
    """Abort what is not decided. Spark calls for it also when a commit has failed, which may have
    left a decision."""
    last = await ledger.last()
    decided = {*last.transactions} if last is not None and last.batch == batch else set()
    await _abort(transactions, set(prepared) - decided)


async def _decide(
    ledger: Ledger,
    transactions: Transactions,
    batch: int,
    prepared: tuple[PreparedTransaction, ...],
) -> Decision:
    states = await transactions.states(prepared)
    lost = [each for each in prepared if states[each] is not State.OPEN]
    if lost:
        raise TransactionLostError(
            f"batch {batch} is not committed, and nothing of it is visible: {_names(lost)} not open"
            " any more; did the batch take longer than kafka.transaction.timeout.ms? Restart the "
            "query, which repeats the batch"
        )
    decision = Decision(batch, prepared, done=not prepared)
    await ledger.write(decision)
    return decision


async def _taken_back(transactions: Transactions, decision: Decision) -> bool:
    """Whether a decision that cannot be carried out any more was taken back as a whole."""
    states = await transactions.states(decision.transactions)
    found = set(states.values())
    if State.ABORTED not in found or not found <= {State.ABORTED, State.OPEN}:
        return False
    # Somebody may be committing them at this moment: only what could be aborted was not.
    still_open = [each for each, state in states.items() if state is State.OPEN]
    return all([await transactions.end(each, commit=False) for each in still_open])


async def _finish(
    ledger: Ledger, transactions: Transactions, decision: Decision, *, accept_loss: bool
) -> None:
    if decision.done:
        return
    each = decision.transactions
    ended = await asyncio.gather(*(transactions.end(one, commit=True) for one in each))
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


async def _abort(transactions: Transactions, prepared: Iterable[PreparedTransaction]) -> None:
    await asyncio.gather(*(transactions.end(each, commit=False) for each in prepared))


def _names(lost: list[PreparedTransaction]) -> str:
    names = ", ".join(each.transactional_id for each in lost[:5])
    more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    return f"transaction{'s' * (len(lost) > 1)} {names}{more} {'are' if len(lost) > 1 else 'is'}"
