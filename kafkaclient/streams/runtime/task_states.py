"""What a task's copy on this instance can be, and what makes it something else."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRANSITIONS", "TaskEvent", "TaskState"]


class TaskState(Enum):
    CREATED = "created"
    """Its store is open, nothing is read."""
    STANDBY = "standby"
    """Follows its changelog, as a standby or to warm up."""
    RESTORING = "restoring"
    """Active, but its state is not complete: reads its changelog to the end."""
    RUNNING = "running"
    """Active: processes."""
    CLOSED = "closed"


class TaskEvent(Enum):
    ASSIGNED_ACTIVE = "assigned as active"
    ASSIGNED_STANDBY = "assigned as standby"
    RESTORED = "restored"
    FAILED = "failed"
    """A commit failed, or may have: what the state is, only its changelog can tell."""
    MIGRATED = "migrated"
    """Another instance has it now, or the group thinks so."""
    STOPPED = "stopped"
    """The instance ends: it does nothing more, but is still open."""
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
"""Whatever is not here is a defect, and raises KeyError."""
