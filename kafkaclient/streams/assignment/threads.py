"""Distributes a client's tasks over its consumers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkaclient.errors import TaskAssignmentError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkaclient.streams.assignment.clients import ClientAssignment
    from kafkaclient.streams.tasks import TaskId


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
    loads = dict.fromkeys(consumers, 0)
    active = _distribute(stateful, owned, loads)
    standby = _distribute(assignment.standby, owned, loads)
    stateless = _distribute(assignment.active - stateful, {}, loads)
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
    """Distribute the tasks in addition to ``loads``, and update ``loads``. All consumers have the
    same share, rounded down."""
    left = set(tasks)
    given: dict[str, list[TaskId]] = {consumer: [] for consumer in loads}
    share = (sum(loads.values()) + len(tasks)) // len(loads)

    def give(consumer: str, task: TaskId) -> None:
        left.remove(task)
        given[consumer].append(task)
        loads[consumer] += 1

    for consumer, previous in owned.items():
        for task in previous:
            if task in left and loads[consumer] < share:
                give(consumer, task)
    # Sorted tasks go to consumers below their share in turn, which mixes subtopologies.
    while left and (below_share := [each for each in loads if loads[each] < share]):
        for task, consumer in zip(sorted(left), below_share, strict=False):
            give(consumer, task)
    # Fewer tasks than consumers remain: previous owners first, then the other consumers.
    owners = {task: consumer for consumer, previous in owned.items() for task in previous}
    for task in sorted(left & owners.keys()):
        if loads[owners[task]] == share:
            give(owners[task], task)
    at_share = [consumer for consumer in loads if loads[consumer] == share]
    for task, consumer in zip(sorted(left), at_share, strict=False):
        give(consumer, task)
    return given
