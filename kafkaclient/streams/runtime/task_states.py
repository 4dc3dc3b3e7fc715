"""The states of a task on this instance, and the events that change them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRANSITIONS", "TaskEvent", "TaskState"]


class TaskState(Enum):
    CREATED = "created"
    """The store is open. Nothing is read."""
    STANDBY = "standby"
    """Follows its changelog, as standby or warm-up."""
    RESTORING = "restoring"
    """Active, with incomplete state: reads its changelog to the end."""
    RUNNING = "running"
    """Active: processes records."""
    CLOSED = "closed"


class TaskEvent(Enum):
    ASSIGNED_ACTIVE = "assigned as active"
    ASSIGNED_STANDBY = "assigned as standby"
    RESTORED = "restored"
    FAILED = "failed"
    """A commit failed or may have failed. The task must restore its state from the changelog."""
    MIGRATED = "migrated"
    """Another instance has the task now, or this member is out of the group."""
    STOPPED = "stopped"
    """The instance shuts down. The task stays open, but does nothing more."""
    REVOKED = "revoked"


_S, _E = TaskState, TaskEvent

TRANSITIONS: Mapping[tuple[TaskState, TaskEvent], TaskState] = {
    (_S.CREATED, _E.ASSIGNED_ACTIVE): _S.RESTORING,
    (_S.CREATED, _E.ASSIGNED_STANDBY): _S.STANDBY,
    (_S.STANDBY, _E.ASSIGNED_ACTIVE): _S.RESTORING,
    (_S.STANDBY, _E.ASSIGNED_STANDBY): _S.STANDBY,
    (_S.RESTORING, _E.ASSIGNED_ACTIVE): _S.RESTORING,
    (_S.RESTORING, _E.ASSIGNED_STANDBY): _S.STANDBY,
    (_S.RESTORING, _E.RESTORED): _S.RUNNING,
    (_S.RESTORING, _E.FAILED): _S.RESTORING,
    (_S.RESTORING, _E.MIGRATED): _S.STANDBY,
    (_S.RESTORING, _E.STOPPED): _S.STANDBY,
    (_S.RUNNING, _E.ASSIGNED_ACTIVE): _S.RUNNING,
    (_S.RUNNING, _E.ASSIGNED_STANDBY): _S.STANDBY,
    (_S.RUNNING, _E.FAILED): _S.RESTORING,
    (_S.RUNNING, _E.MIGRATED): _S.STANDBY,
    (_S.RUNNING, _E.STOPPED): _S.STANDBY,
    (_S.CREATED, _E.REVOKED): _S.CLOSED,
    (_S.STANDBY, _E.REVOKED): _S.CLOSED,
    (_S.RESTORING, _E.REVOKED): _S.CLOSED,
    (_S.RUNNING, _E.REVOKED): _S.CLOSED,
}
"""(state, event) -> next state. Any other pair is a bug and raises KeyError."""
