"""The balanced assignment: equal numbers of tasks per consumer, regardless of earlier owners."""

from __future__ import annotations

from bisect import insort
from itertools import cycle, permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkaclient.streams.assignment.clients import ClientState
    from kafkaclient.streams.tasks import TaskId

__all__ = ["LeastLoaded", "assign_actives", "assign_stateless", "balance_tasks", "to_any_client"]


class LeastLoaded:
    """Clients sorted by load. Take a client out before its load changes, then put it back."""

    def __init__(
        self, clients: Iterable[ClientState], load: Callable[[ClientState], float]
    ) -> None:
        self._load = load
        self._entries = sorted((load(client), client.order, client) for client in clients)

    def take(self, is_eligible: Callable[[ClientState], bool]) -> ClientState | None:
        """Remove and return the least loaded eligible client. None if no client is eligible."""
        for index, (_, _, client) in enumerate(self._entries):
            if is_eligible(client):
                del self._entries[index]
                return client
        return None

    def put(self, client: ClientState) -> None:
        insort(self._entries, (self._load(client), client.order, client))


def assign_actives(clients: Sequence[ClientState], stateful_tasks: Iterable[TaskId]) -> None:
    """Assign the sorted stateful tasks round-robin, to spread subtopologies, then balance them."""
    for task, client in zip(stateful_tasks, cycle(clients), strict=False):
        client.active.add(task)
    balance_tasks(clients, lambda client: client.active, to_any_client)


def assign_stateless(clients: Sequence[ClientState], stateless_tasks: Iterable[TaskId]) -> None:
    """Assign each sorted stateless task to the client with the fewest active tasks per consumer."""
    least_loaded = LeastLoaded(clients, lambda client: client.active_load)
    for task in stateless_tasks:
        client = least_loaded.take(lambda _: True)
        assert client is not None
        client.active.add(task)
        least_loaded.put(client)


def balance_tasks(
    clients: Sequence[ClientState],
    tasks_of: Callable[[ClientState], set[TaskId]],
    may_move: Callable[[ClientState, ClientState], bool],
) -> None:
    """Move tasks of one kind between clients while that makes the numbers of tasks per consumer
    more equal (``HighAvailabilityTaskAssignor.balanceTasksOverThreads``)."""
    moving = True
    while moving:
        moving = False
        for source, destination in permutations(clients, 2):
            if not (_improves_balance(source, destination) and may_move(source, destination)):
                continue
            for task in sorted(tasks_of(source)):
                if not destination.has(task):
                    tasks_of(source).remove(task)
                    tasks_of(destination).add(task)
                    moving = True
                    if not _improves_balance(source, destination):
                        break


def to_any_client(_source: ClientState, _destination: ClientState) -> bool:
    """A ``may_move`` of :func:`balance_tasks` that allows every move."""
    return True


def _improves_balance(source: ClientState, destination: ClientState) -> bool:
    """Whether moving one task reduces the difference in load without reversing it."""
    difference = source.load - destination.load
    if difference <= 0:
        return False
    difference_after = (source.count - 1) / source.capacity - (
        destination.count + 1
    ) / destination.capacity
    return 0 <= difference_after < difference
