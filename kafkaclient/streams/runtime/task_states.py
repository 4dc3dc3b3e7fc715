"""The events that change a task's state, and the errors that restart the task."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.errors import (
    BrokerError,
    KafkaError,
    MetadataTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownTopicError,
)
from kafkaclient.streams.tasks import TaskState

if TYPE_CHECKING:
    from collections.abc import Mapping


class TaskEvent(Enum):
    ASSIGNED_ACTIVE = "assigned as active"
    ASSIGNED_STANDBY = "assigned as standby"
    RESTORED = "restored"
    FAILED = "failed"
    """A commit failed or may have failed. The task must restore its state from the changelog."""
    LOST = "lost"
    """This member is out of the group: another instance may have the task."""
    STOPPED = "stopped"
    """The instance shuts down. The task stays open, but does nothing more."""
    REVOKED = "revoked"


_S, _E = TaskState, TaskEvent
_ACTIVE = (_S.RESTORING, _S.RUNNING)
_OPEN = (_S.CREATED, _S.STANDBY, *_ACTIVE)

TRANSITIONS: Mapping[tuple[TaskState, TaskEvent], TaskState] = {
    (before, event): after
    for event, states, after in (
        (_E.ASSIGNED_ACTIVE, (_S.CREATED, _S.STANDBY, _S.RESTORING), _S.RESTORING),
        (_E.ASSIGNED_ACTIVE, (_S.RUNNING,), _S.RUNNING),
        (_E.ASSIGNED_STANDBY, _OPEN, _S.STANDBY),
        (_E.RESTORED, (_S.RESTORING,), _S.RUNNING),
        (_E.FAILED, _ACTIVE, _S.RESTORING),
        (_E.LOST, _ACTIVE, _S.STANDBY),
        (_E.STOPPED, _ACTIVE, _S.STANDBY),
        (_E.REVOKED, _OPEN, _S.CLOSED),
    )
    for before in states
}
"""(state, event) -> next state. Any other pair is a bug and raises KeyError."""

# ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID
_NOT_A_MEMBER = frozenset({22, 25, 27, 82})
# INVALID_TXN_STATE, TRANSACTION_ABORTABLE: the transaction is over, or must be aborted
_ABORTED = frozenset({48, 120})


def is_recoverable(error: BaseException) -> bool:
    """Whether a task can go on after the error: with its committed state (FAILED). Otherwise a
    retry would fail again.

    A fenced producer says nothing about who has the task: all tasks share it, and the group alone
    assigns them.
    """
    if isinstance(error, TransactionAbortableError) and error.__cause__ is not None:
        return is_recoverable(error.__cause__)
    if isinstance(error, MetadataTimeoutError) and isinstance(error.__cause__, UnknownTopicError):
        return False  # brokers answered that the topic does not exist
    if isinstance(error, (ProducerFencedError, TransactionAbortableError)):
        return True  # the latter: a transaction that took too long, for example
    if isinstance(error, BrokerError) and error.code in _NOT_A_MEMBER | _ABORTED:
        return True
    return isinstance(error, KafkaError) and error.retriable
