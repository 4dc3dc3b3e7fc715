"""Turns the balanced assignment into one in which caught-up clients process the tasks
(``TaskMovement.java``).

If the balanced assignment gives a task to a client that is not caught up, a caught-up client gets
it for now. The intended client gets a warm-up, while the limit of warm-ups allows it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from kafkaclient.streams.tasks import LATEST_OFFSET, MAX_LAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkaclient.streams.assignment.clients import ClientState
    from kafkaclient.streams.tasks import TaskId


class _Ranking:
    """The clients ranked by their lag on one task."""

    def __init__(self, clients: Sequence[ClientState], lags: list[int], acceptable: int) -> None:
        self._clients = clients
        self._lags = lags
        self.smallest_lag = min(lags)
        self.caught_up = [
            client
            for client, lag in zip(clients, lags, strict=True)
            if lag <= acceptable
            and is_caught_up(lag, acceptable)  # the first test is redundant but fast
        ]
        """The caught-up clients, in the clients' order."""

    def ahead_of(self, client: ClientState) -> Iterator[ClientState]:
        """The clients with a smaller lag than ``client``, smallest first, ties in client order.

        An unknown lag is a negative number, so its client comes first, as in Java.
        """
        furthest_first = sorted(self._clients, key=lambda each: self._lags[each.order])
        return iter(furthest_first[: furthest_first.index(client)])


def is_caught_up(lag: int, acceptable_recovery_lag: int) -> bool:
    """Whether a client with this lag may take over the task immediately."""
    return (
        0 <= lag <= acceptable_recovery_lag
        or lag == LATEST_OFFSET
        or acceptable_recovery_lag == MAX_LAG
    )


class TaskMover:
    """Moves tasks with at most ``max_warmup_replicas`` new warm-ups: move active tasks first.

    The ranking of a task is computed on first use: most tasks do not need theirs.
    """

    def __init__(
        self,
        clients: Sequence[ClientState],
        acceptable_recovery_lag: int,
        max_warmup_replicas: int,
    ) -> None:
        self._clients = clients
        self._acceptable = acceptable_recovery_lag
        self._warmups_left = max_warmup_replicas
        self._lags = [client.lags for client in clients]
        self._rankings: dict[TaskId, _Ranking] = {}

    def move_actives(self) -> int:
        """Move active tasks to caught-up clients, or else to the client with the smallest lag.
        Returns the number of tasks that are not where the balanced assignment has them."""
        movements = self._movements(attrgetter("active"))
        for task, destination in movements:
            ranking = self._ranking(task)
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
            elif self._warmups_left:
                self._warmups_left -= 1
                destination.standby.add(task)
                destination.warmup.add(task)
        return len(movements)

    def move_standbys(self) -> int:
        """Move standbys that are not warm-ups, as :meth:`move_actives`. Returns how many moved. A
        standby stays if every client with a smaller lag already has a copy."""
        moved = 0
        for task, destination in self._movements(lambda client: client.standby - client.warmup):
            ranking = self._ranking(task)
            ahead = (client for client in ranking.ahead_of(destination) if not client.has(task))
            source = _least_loaded(c for c in ranking.caught_up if not c.has(task))
            source = source or next(ahead, None)
            if source is None:
                continue
            source.standby.add(task)
            if self._warmups_left:
                self._warmups_left -= 1
                destination.warmup.add(task)
            else:
                destination.standby.remove(task)
            moved += 1
        return moved

    def _movements(
        self, tasks_of: Callable[[ClientState], Iterable[TaskId]]
    ) -> list[tuple[TaskId, ClientState]]:
        """The tasks to move, with the client that the balanced assignment gives them to. Tasks with
        the fewest caught-up clients come first, because they have the least choice."""
        movements = [
            (len(self._ranking(task).caught_up), task, client.order, client)
            for client in self._clients
            for task in tasks_of(client)
            if self._belongs_elsewhere(client, task)
        ]
        return [(task, client) for _, task, _, client in sorted(movements)]

    def _belongs_elsewhere(self, client: ClientState, task: TaskId) -> bool:
        """Whether the client is not caught up on the task and another client has a smaller lag."""
        lag = client.lags[task]
        return not is_caught_up(lag, self._acceptable) and self._ranking(task).smallest_lag < lag

    def _ranking(self, task: TaskId) -> _Ranking:
        ranking = self._rankings.get(task)
        if ranking is None:
            lags = [client_lags[task] for client_lags in self._lags]
            ranking = self._rankings[task] = _Ranking(self._clients, lags, self._acceptable)
        return ranking


def _least_loaded(clients: Iterable[ClientState]) -> ClientState | None:
    """The client with the least load, the first one of equals. None if there are no clients."""
    return min(clients, key=attrgetter("load"), default=None)
