"""The states of a transactional producer, and what leads from one to another (Java:
``TransactionManager.State``); and what a coordinator's answer means, one table for all calls."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import BROKER_ERRORS
from kafkaclient.errors import ProducerStateError, TransactionAbortableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.errors import KafkaError

__all__ = ["TRANSITIONS", "Outcome", "TransactionState", "TransactionStatus", "outcome_of"]


class TransactionState(Enum):
    """The values complete the sentence "the producer ..."."""

    UNINITIALIZED = "has not asked for its producer id yet"
    INITIALIZING = "is asking for its producer id"
    READY = "has no transaction open"
    IN_TRANSACTION = "has a transaction open"
    PREPARED = "has prepared its transaction, which is to be ended"
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
    # To ABORTING: the application changes its mind while records are still being flushed.
    _S.COMMITTING: frozenset({_S.READY, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.FATAL}),
    _S.ABORTING: frozenset({_S.READY, _S.FATAL}),
    _S.FATAL: frozenset(),
}


class TransactionStatus:
    """The state that a producer is in, and what it is in it for."""

    def __init__(self, name: str) -> None:
        self.state = _S.UNINITIALIZED
        self.cause: KafkaError | None = None
        """Why the open transaction can only be aborted, or why the producer cannot go on."""
        self.name = name
        """The transactional id."""

    def move(self, state: TransactionState) -> None:
        """To ``state``, by the table."""
        if state not in TRANSITIONS[self.state]:
            raise ProducerStateError(
                f"transactional id {self.name!r}: no way from {self.state.name} to {state.name}; "
                "this is a defect"
            )
        self.state = state

    def refusal(self, what: str, advice: str) -> KafkaError:
        """Why a call is not possible in this state."""
        if self.state is _S.FATAL and self.cause is not None:
            return self.cause.with_traceback(None)  # it is raised again and again
        if self.state is _S.ABORTABLE_ERROR:
            error = TransactionAbortableError(
                f"{what}: the transaction of {self.name!r} can only be aborted: {self.cause}"
            )
            error.__cause__ = self.cause
            return error
        return ProducerStateError(f"{what}: the producer {self.state.value}; {advice}")


class Outcome(Enum):
    """What becomes of a call to a coordinator."""

    DONE = "it has worked"
    RETRY = "ask again after a pause"
    RELOCATE = "find out who coordinates now, and ask there"
    ABORTABLE = "the transaction cannot be committed, the producer can go on"
    FATAL = "the producer may not go on"


_OUTCOMES: Mapping[int, Outcome] = {
    -1: Outcome.RETRY,  # UNKNOWN_SERVER_ERROR: of a coordinator that starts or ends
    0: Outcome.DONE,
    7: Outcome.RELOCATE,  # REQUEST_TIMED_OUT
    15: Outcome.RELOCATE,  # COORDINATOR_NOT_AVAILABLE
    16: Outcome.RELOCATE,  # NOT_COORDINATOR
    31: Outcome.FATAL,  # CLUSTER_AUTHORIZATION_FAILED
    # The coordinator does not tell an old epoch from a newer instance (KIP-588): fenced is fenced.
    47: Outcome.FATAL,  # INVALID_PRODUCER_EPOCH
    50: Outcome.FATAL,  # INVALID_TRANSACTION_TIMEOUT
    53: Outcome.FATAL,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    90: Outcome.FATAL,  # PRODUCER_FENCED
}


def outcome_of(code: int) -> Outcome:
    """The meaning of ``code`` in a coordinator's answer.

    Java makes unknown errors fatal; here only those are that are about who may write, because an
    abort that asks for the next epoch finds out about all others.
    """
    known = _OUTCOMES.get(code)
    if known is not None:
        return known
    _, retriable, _, _ = BROKER_ERRORS.get(code, ("", False, None, ""))
    return Outcome.RETRY if retriable else Outcome.ABORTABLE
