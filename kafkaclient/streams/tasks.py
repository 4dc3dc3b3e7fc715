"""Tasks: their ids, their states on an instance, and the special values of offsets and lags."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple, Self

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
