"""Tasks: their ids, their states on an instance, the events that change a task's state and the
errors that restart it, and the special values of offsets and lags."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Self

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import (
    BrokerError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


LATEST_OFFSET = -2
"""As an offset sum or lag: the task is active and running there (``Task.java``)."""
UNKNOWN_OFFSET_SUM = -3
"""As an offset sum or lag: the copy's position is unknown. Members before version 7 report no
positions (``SubscriptionInfo.java``)."""
MAX_LAG = 2**63 - 1
"""As ``acceptable.recovery.lag``: every client counts as caught up. The cap of all sums."""

_TEXT = re.compile(r"(?:(?P<topology>.*?)__)?(?P<subtopology>\d+)_(?P<partition>\d+)", re.ASCII)


class TaskId(NamedTuple):
    """A subtopology and one partition of its input, both counted from 0: the unit of work.

    Sorts by subtopology, then partition. ``topology_name`` is empty unless the application has
    named topologies.
    """

    subtopology: int
    partition: int
    topology_name: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The task written as ``0_1`` or ``name__0_1``. Raises ValueError for other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no task id; use the form 0_1 or name__0_1")
        return cls(int(match["subtopology"]), int(match["partition"]), match["topology"] or "")

    def __str__(self) -> str:
        prefix = f"{self.topology_name}__" if self.topology_name else ""
        return f"{prefix}{self.subtopology}_{self.partition}"


class TaskState(Enum):
    """What a task does at present."""

    CREATED = "created"
    """The store is open. Nothing is read."""
    STANDBY = "standby"
    """Follows its changelog, as standby or warm-up, if the instance does not end."""
    RESTORING = "restoring"
    """Active, with incomplete state: reads its changelog to the end."""
    RUNNING = "running"
    """Active: processes records."""
    CLOSED = "closed"

    @property
    def is_active(self) -> bool:
        return self in (TaskState.RESTORING, TaskState.RUNNING)


class TaskDescription(NamedTuple):
    """A task on this instance."""

    task: TaskId
    state: TaskState
    position: int
    """Offset in the task's changelog."""
    lag: int | None
    """Records behind the changelog's end. None: the task is running, or the lag is unknown."""


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

_NOT_A_MEMBER = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
# The transaction is over, or must be aborted.
_ABORTED = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})


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
    if isinstance(error, ProducerClosedError):
        return True  # another task's failure has closed it (PlainOutput.abandon): it starts again
    if isinstance(error, BrokerError) and error.code in _NOT_A_MEMBER | _ABORTED:
        return True
    return isinstance(error, KafkaError) and error.retriable
