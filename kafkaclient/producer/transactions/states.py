"""The states of a transactional producer, and the transitions between them (Java:
``TransactionManager.State``)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.errors import ProducerStateError, TransactionAbortableError, defect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.errors import KafkaError


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
