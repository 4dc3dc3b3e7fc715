"""When this member asks for a rebalance by itself. Pure: the clock is an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.streams.assignment_info import NO_REBALANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.streams.tasks import TaskId

__all__ = ["RebalanceSchedule"]

_DEBOUNCE_S = 0.1
"""Seconds. Each request that reaches the group after an earlier one's SyncGroup is a rebalance
more."""
_GATHER_S = 0.5
"""Seconds. Copies that catch up within it share a rebalance: each one stops everybody for a moment,
and nobody is in need of these copies."""


class RebalanceSchedule:
    """The next rebalance that this member wants; a new assignment makes it void.

    Three reasons: the leader's probing interval is over; a copy of a task has caught up, while the
    assignment is not balanced; something happened that only another assignment can repair.
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
        """By the clock; None: never."""

    def subscribed(self, running: Iterable[TaskId]) -> None:
        """The leader is being told how far this member's copies are, and what runs here: a task
        that is moved away leaves a copy behind that has caught up."""
        self._reported = self._caught_up | set(running)

    def assigned(self, next_rebalance_ms: int, standbys: Iterable[TaskId], *, leader: bool) -> None:
        """A new assignment. ``next_rebalance_ms`` is the leader's word, by its own clock: only on
        the leader it starts a timer, others are told by it that copies may be warm-ups."""
        standbys = set(standbys)
        self.due_at = None
        self._caught_up &= standbys
        unbalanced = next_rebalance_ms != NO_REBALANCE
        # What had caught up when the leader was told has had its effect.
        self._behind = standbys - self._reported if unbalanced else set()
        if next_rebalance_ms == 0:
            self.request_soon()
        elif unbalanced and leader:
            self._set_due(self._clock() + max(0.0, next_rebalance_ms / 1000 - self._wall()))

    def observe(self, task: TaskId, lag: int) -> None:
        """How many records this member's copy of the task is behind."""
        if lag > self._acceptable:
            self._caught_up.discard(task)
            return
        self._caught_up.add(task)
        if task in self._behind:
            self._behind.discard(task)
            self._set_due(self._clock() + _GATHER_S)

    def request_soon(self) -> None:
        """Ask for a rebalance soon."""
        self._set_due(self._clock() + _DEBOUNCE_S)

    def take_due(self) -> bool:
        """Whether a rebalance is to be asked for now; it is told once."""
        if self.due_at is None or self._clock() < self.due_at:
            return False
        self.due_at = None
        return True

    def _set_due(self, time: float) -> None:
        self.due_at = time if self.due_at is None else min(self.due_at, time)
