"""Turns the balanced assignment into one in which caught-up clients process the tasks
(``TaskMovement.java``).

If the balanced assignment gives a task to a client that is not caught up, a caught-up client gets
it for now. The intended client gets a warm-up, while the limit of warm-ups allows it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkaclient.streams.assignment.clients import ClientState
    from kafkaclient.streams.assignment.lags import Ranking, Rankings
    from kafkaclient.streams.tasks import TaskId

__all__ = ["WarmupBudget", "move_actives", "move_standbys"]

_load = attrgetter("load")


class WarmupBudget:
    """How many warm-ups may still be assigned. Active tasks use the budget first."""

    def __init__(self, max_warmup_replicas: int) -> None:
        self.left = max_warmup_replicas

    def take(self) -> bool:
        """Use one warm-up of the budget. Returns False if none is left."""
        if self.left == 0:
            return False
        self.left -= 1
        return True


def move_actives(clients: Sequence[ClientState], rankings: Rankings, warmups: WarmupBudget) -> int:
    """Move active tasks to caught-up clients, or else to the client with the smallest lag. Returns
    the number of tasks that are not where the balanced assignment has them."""
    movements = _movements(clients, attrgetter("active"), rankings)
    for task, destination in movements:
        _move_active(task, destination, rankings.of(task), warmups)
    return len(movements)


def _move_active(
    task: TaskId, destination: ClientState, ranking: Ranking, warmups: WarmupBudget
) -> None:
    source = (
        _least_loaded(client for client in ranking.caught_up if task in client.standby)
        or _least_loaded(ranking.caught_up)
        or next(ranking.ahead_of(destination))
    )
    destination.active.remove(task)
    source.active.add(task)
    if task in source.standby:
        # The clients swap roles. No additional copy, so no warm-up is used.
        source.standby.remove(task)
        destination.standby.add(task)
    elif warmups.take():
        destination.standby.add(task)
        destination.warmup.add(task)


def move_standbys(clients: Sequence[ClientState], rankings: Rankings, warmups: WarmupBudget) -> int:
    """Move standbys that are not warm-ups, as :func:`move_actives`. Returns how many moved. A
    standby stays if every client with a smaller lag already has a copy."""
    moved = 0
    for task, destination in _movements(clients, _regular_standbys, rankings):
        ranking = rankings.of(task)
        source = _least_loaded(client for client in ranking.caught_up if not client.has(task))
        if source is None:
            ahead = ranking.ahead_of(destination)
            source = next((client for client in ahead if not client.has(task)), None)
        if source is None:
            continue
        source.standby.add(task)
        if warmups.take():
            destination.warmup.add(task)
        else:
            destination.standby.remove(task)
        moved += 1
    return moved


def _regular_standbys(client: ClientState) -> set[TaskId]:
    return client.standby - client.warmup


def _movements(
    clients: Sequence[ClientState],
    tasks_of: Callable[[ClientState], Iterable[TaskId]],
    rankings: Rankings,
) -> list[tuple[TaskId, ClientState]]:
    """The tasks to move, with the client that the balanced assignment gives them to. Tasks with the
    fewest caught-up clients come first, because they have the least choice."""
    movements = [
        (len(rankings.of(task).caught_up), task, client.order, client)
        for client in clients
        for task in tasks_of(client)
        if rankings.belongs_elsewhere(client, task)
    ]
    return [(task, client) for _, task, _, client in sorted(movements)]


def _least_loaded(clients: Iterable[ClientState]) -> ClientState | None:
    """The client with the least load, the first one of equals. None if there are no clients."""
    return min(clients, key=_load, default=None)
