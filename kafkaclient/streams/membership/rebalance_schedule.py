"""When this member requests a rebalance. Pure: the clock is an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.streams.group_protocol import NO_REBALANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.streams.tasks import TaskId

_DEBOUNCE_S = 0.1  # requests within this time share a rebalance
_GATHER_S = 0.5  # copies that catch up within this time share a rebalance


class RebalanceSchedule:
    """The next rebalance that this member requests. A new assignment cancels it.

    There are three reasons: the leader's probing interval is over; a standby has caught up while
    the assignment is not balanced; a task needs another assignment after a failure.
    """

    def __init__(
        self, acceptable_recovery_lag: int, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._acceptable = acceptable_recovery_lag
        self._clock = clock
        self._wall = wall
        self._behind: set[TaskId] = set()
        self._caught_up: set[TaskId] = set()
        self._reported: set[TaskId] = set()
        self.due_at: float | None = None
        """When to request the rebalance, by the clock. None: no request is scheduled."""

    @property
    def warmups(self) -> int:
        """How many copies have not caught up while tasks are to move."""
        return len(self._behind)

    def subscribed(self, running: Iterable[TaskId]) -> None:
        """This member sends its positions to the leader. A ``running`` task counts as caught up: if
        it moves away, its copy here is caught up."""
        self._reported = self._caught_up | set(running)

    def assigned(self, next_rebalance_ms: int, standbys: Iterable[TaskId], *, leader: bool) -> None:
        """A new assignment. ``next_rebalance_ms`` is by the leader's clock. Only the leader starts
        a timer for it. To the other members it only means that their standbys may be warm-ups."""
        standbys = set(standbys)
        self.due_at = None
        self._caught_up &= standbys
        unbalanced = next_rebalance_ms != NO_REBALANCE
        # The leader already knows the copies that had caught up when this member joined.
        self._behind = standbys - self._reported if unbalanced else set()
        if next_rebalance_ms == 0:
            self.request_soon()
        elif unbalanced and leader:
            self._set_due(self._clock() + max(0.0, next_rebalance_ms / 1000 - self._wall()))

    def observe(self, task: TaskId, lag: int) -> None:
        """Note the lag, in records, of this member's copy of the task."""
        if lag > self._acceptable:
            self._caught_up.discard(task)
            return
        self._caught_up.add(task)
        if task in self._behind:
            self._behind.discard(task)
            self._set_due(self._clock() + _GATHER_S)

    def request_soon(self) -> None:
        """Schedule a rebalance after the debounce time."""
        self._set_due(self._clock() + _DEBOUNCE_S)

    def take_due(self) -> bool:
        """Remove the scheduled request if it is due. Returns whether it was due."""
        if self.due_at is None or self._clock() < self.due_at:
            return False
        self.due_at = None
        return True

    def _set_due(self, time: float) -> None:
        self.due_at = time if self.due_at is None else min(self.due_at, time)
