"""The states of a transactional producer, and the task that ends a transaction."""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.errors import (
    KafkaError,
    ProducerStateError,
    TransactionAbortableError,
    TransactionTimeoutError,
    defect,
)
from kafkaclient.time_limit import time_limit, wait_within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.transactions.requests import TransactionRequests


# --- The states of a transactional producer, and the transitions between them ---------------------


class TransactionState(Enum):
    """The values complete the sentence "the producer ..."."""

    UNINITIALIZED = "has not requested its producer id yet"
    INITIALIZING = "is requesting its producer id"
    READY = "has no transaction open"
    IN_TRANSACTION = "has a transaction open"
    PREPARED = "has prepared its transaction, which must be committed or aborted"
    COMMITTING = "is committing a transaction"
    ABORTING = "is aborting a transaction"
    ABORTABLE_ERROR = "has a transaction open that can only be aborted"
    FATAL = "cannot go on"


_S = TransactionState

TRANSITIONS: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL}),
    _S.INITIALIZING: frozenset({_S.READY, _S.FATAL}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL}),
    _S.IN_TRANSACTION: frozenset(
        {_S.PREPARED, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL}
    ),
    _S.PREPARED: frozenset({_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL}),
    # To ABORTING: the application aborts while the commit still waits for records.
    _S.COMMITTING: frozenset({_S.READY, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.FATAL}),
    _S.ABORTING: frozenset({_S.READY, _S.FATAL}),
    _S.FATAL: frozenset(),
}


class TransactionStatus:
    """The state of a producer, and the error that has led to it."""

    def __init__(self, transactional_id: str) -> None:
        self.state = _S.UNINITIALIZED
        self.cause: KafkaError | None = None
        """Why the open transaction can only be aborted, or why the producer cannot go on."""
        self._transactional_id = transactional_id

    def move(self, state: TransactionState) -> None:
        """Move to ``state``, as the table allows."""
        if state not in TRANSITIONS[self.state]:
            raise defect(
                f"transactional id {self._transactional_id!r}: "
                f"no transition from {self.state.name} to {state.name}",
                kind=ProducerStateError,
            )
        self.state = state

    def not_allowed(self, what: str, advice: str) -> KafkaError:
        """The error of a call that this state does not allow."""
        if self.state is _S.FATAL and self.cause is not None:
            return self.cause.with_traceback(None)  # it is raised many times
        if self.state is _S.ABORTABLE_ERROR:
            error = TransactionAbortableError(
                f"{what}: the transaction of {self._transactional_id!r} can only be aborted: "
                f"{self.cause}"
            )
            error.__cause__ = self.cause
            return error
        return ProducerStateError(f"{what}: the producer {self.state.value}; {advice}")


# --- How a transaction ends: in a task of its own -------------------------------------------------

_log = logging.getLogger(__name__)

T = TypeVar("T")


class EndTxnTask:
    """A commit or an abort under way; all callers that wait for it get its one outcome.

    ``work(end_txn)`` does it; ``on_defect(error)`` is called when that raises anything but a
    KafkaError.
    """

    def __init__(
        self,
        work: Callable[[EndTxnTask], Coroutine[None, None, None]],
        *,
        commit: bool,
        on_defect: Callable[[KafkaError], None],
    ) -> None:
        self.commit = commit
        self.error: KafkaError | None = None
        self.sent = False
        """The coordinator may have got EndTxn: only its answer shows the outcome."""
        self.observed: bool = False
        """The task has ended, and a caller has seen its outcome."""
        self._on_defect = on_defect
        self.task = asyncio.get_running_loop().create_task(
            self._run(work), name=f"kafkaclient-{self.name}"
        )

    @property
    def name(self) -> str:
        """The method that the application has called."""
        return "commit_transaction" if self.commit else "abort_transaction"

    async def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; returns whether the task has ended. Cancelling the call does not
        cancel the task."""
        ended = await wait_within(self.task, seconds)
        self.observed |= ended
        return ended

    async def _run(self, work: Callable[[EndTxnTask], Coroutine[None, None, None]]) -> None:
        try:
            await work(self)
        except KafkaError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - no caller may wait forever
            _log.exception("ending a transaction failed")
            self.error = defect(self.name, error)
            self._on_defect(self.error)


class MaxBlockTimeout:
    """The time limit (``max.block.ms``) for the calls of one transactional id."""

    def __init__(self, transactional_id: str, requests: TransactionRequests, limit: Limit) -> None:
        self.seconds = limit.seconds
        self._limit = limit
        self._transactional_id = transactional_id
        self._requests = requests

    async def within(self, call: Coroutine[None, None, T], what: str, spent: float = 0.0) -> T:
        """Await a call that may be given up. Raises TransactionTimeoutError when its time is
        over, of which ``spent`` seconds have passed already."""
        try:
            async with time_limit(self.seconds - spent) as limit:
                return await call
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not limit.expired():
                raise
            raise self.error(what) from self._requests.last_error

    def error(self, what: str) -> TransactionTimeoutError:
        """The error for a call that took too long; it names the coordinator's last error."""
        last = self._requests.last_error
        return TransactionTimeoutError(
            f"transactional id {self._transactional_id!r}: {what}; not done within {self._limit}, "
            f"last error: {last or 'none'}"
        )
