"""Distributes a client's tasks over its consumers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkaclient.errors import TaskAssignmentError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkaclient.streams.assignment.clients import ClientAssignment
    from kafkaclient.streams.tasks import TaskId

__all__ = ["ConsumerTasks", "assign_tasks_to_threads"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTasks:
    """The tasks of one consumer, sorted."""

    active: tuple[TaskId, ...]
    standby: tuple[TaskId, ...]


def assign_tasks_to_threads(
    assignment: ClientAssignment,
    lags: Mapping[TaskId, int],
    previous: Mapping[str, Collection[TaskId]],
) -> dict[str, ConsumerTasks]:
    """Member id -> its part of the client's tasks
    (``StreamsPartitionAssignor.assignTasksToThreads``).

    ``previous``: member id -> stateful tasks that the consumer had copies of. A consumer keeps its
    previous tasks as far as the balance allows, those with the smallest lag first. The numbers of
    tasks of two consumers differ by at most one. The stateful tasks are the keys of ``lags``.

    Raises :class:`~kafkaclient.errors.TaskAssignmentError` if there is no consumer.
    """
    if not previous:
        raise TaskAssignmentError("tasks cannot be assigned to a client without consumers")
    consumers = sorted(previous)
    owned = {
        consumer: sorted(previous[consumer] & lags.keys(), key=lambda task: (lags[task], task))
        for consumer in consumers
    }
    stateful = assignment.active & lags.keys()
    no_owners: dict[str, list[TaskId]] = {consumer: [] for consumer in consumers}
    loads = dict.fromkeys(consumers, 0)
    active = _distribute(stateful, owned, loads)
    standby = _distribute(assignment.standby, owned, loads)
    stateless = _distribute(assignment.active - stateful, no_owners, loads)
    return {
        consumer: ConsumerTasks(
            active=tuple(sorted(active[consumer] + stateless[consumer])),
            standby=tuple(sorted(standby[consumer])),
        )
        for consumer in consumers
    }


def _distribute(
    tasks: Collection[TaskId], owned: Mapping[str, Sequence[TaskId]], loads: dict[str, int]
) -> dict[str, list[TaskId]]:
    """Distribute the tasks in addition to ``loads``, and update ``loads``."""
    distribution = _Distribution(tasks, loads)
    deferred = {}
    for consumer, previous in owned.items():
        for task in previous:
            if task in distribution.left:
                if distribution.is_below_share(consumer):
                    distribution.give(consumer, task)
                else:
                    deferred[task] = consumer
    distribution.fill_to_share()
    # Fewer tasks than consumers remain: previous owners first, then the other consumers.
    for task, consumer in sorted(deferred.items()):
        if task in distribution.left and distribution.is_at_share(consumer):
            distribution.give(consumer, task)
    at_share = iter([consumer for consumer in loads if distribution.is_at_share(consumer)])
    for task, consumer in zip(sorted(distribution.left), at_share, strict=False):
        distribution.give(consumer, task)
    return distribution.given


class _Distribution:
    """Consumers while tasks are distributed. All have the same share, rounded down."""

    def __init__(self, tasks: Collection[TaskId], loads: dict[str, int]) -> None:
        self.left = set(tasks)
        self.given: dict[str, list[TaskId]] = {consumer: [] for consumer in loads}
        self._loads = loads
        self._share = (sum(loads.values()) + len(tasks)) // len(loads)

    def is_below_share(self, consumer: str) -> bool:
        return self._loads[consumer] < self._share

    def is_at_share(self, consumer: str) -> bool:
        return self._loads[consumer] == self._share

    def give(self, consumer: str, task: TaskId) -> None:
        self.left.remove(task)
        self.given[consumer].append(task)
        self._loads[consumer] += 1

    def fill_to_share(self) -> None:
        """Give sorted tasks to consumers below their share in turn, which mixes subtopologies."""
        below_share = deque(filter(self.is_below_share, self._loads))
        for task in sorted(self.left):
            if not below_share:
                return
            consumer = below_share.popleft()
            self.give(consumer, task)
            if self.is_below_share(consumer):
                below_share.append(consumer)
