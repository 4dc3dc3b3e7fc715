"""How far behind each client's copy of a task is, and who is caught up."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kafkaclient.streams.tasks import (
    LATEST_OFFSET,
    MAX_LAG,
    OFFSET_UNKNOWN,
    UNKNOWN_OFFSET_SUM,
    TaskId,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkaclient.streams.assignment.clients import ClientState

__all__ = ["Ranking", "Rankings", "is_caught_up", "offset_sum", "task_lags"]


def offset_sum(offsets: Iterable[int]) -> int:
    """What a member reports of a task: the sum of its stores' offsets.

    :data:`~kafkaclient.streams.tasks.LATEST_OFFSET` when one says so, as those of a running active
    task do. Offsets that a checkpoint does not know are left out; a sum that does not fit into 63
    bits is pinned to the largest (``TaskManager.sumOfChangelogOffsets``). Raises ValueError for any
    other negative offset.
    """
    total = 0
    for offset in offsets:
        if offset == LATEST_OFFSET:
            return LATEST_OFFSET
        if offset == OFFSET_UNKNOWN:
            continue
        if offset < 0:
            raise ValueError(f"{offset} is no offset of a changelog")
        total += offset
    return min(total, MAX_LAG)


def task_lags(
    end_offset_sums: Mapping[TaskId, int], offset_sums: Mapping[TaskId, int]
) -> dict[TaskId, int]:
    """A client's lag on every stateful task (``ClientState.computeTaskLags``).

    ``end_offset_sums``: of all stateful tasks, the ends of their changelogs added up, 0 for stores
    without changelog. ``offset_sums``: what the client's members reported; tasks that are not
    stateful are ignored. A copy that is ahead of its changelog is corrupt and counts as none.
    """
    lags = dict(end_offset_sums)
    for task, offsets in offset_sums.items():
        end = end_offset_sums.get(task)
        if end is None or offsets > end:
            continue
        lags[task] = offsets if offsets in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM) else end - offsets
    return lags


class Ranking:
    """How far every client is on one task."""

    def __init__(self, clients: Sequence[ClientState], lags: list[int], acceptable: int) -> None:
        self._clients = clients
        self._lags = lags
        self.smallest_lag = min(lags)
        self.caught_up = [
            client
            for client, lag in zip(clients, lags, strict=True)
            if lag <= acceptable and is_caught_up(lag, acceptable)  # spares most of the calls
        ]
        """In the clients' order."""

    def ahead_of(self, client: ClientState) -> Iterator[ClientState]:
        """The clients that are further than this one, the furthest first, equals in their order.

        An unknown lag comes before all others, as in Java: it is a negative number.
        """
        for order in self._furthest_first:
            if order == client.order:
                return
            yield self._clients[order]

    @cached_property
    def _furthest_first(self) -> list[int]:
        return sorted(range(len(self._lags)), key=self._lags.__getitem__)


class Rankings:
    """The ranking of each task, made when it is first asked for: most tasks need none, as they are
    given to a client that is caught up."""

    def __init__(self, clients: Sequence[ClientState], acceptable_recovery_lag: int) -> None:
        self._clients = clients
        self._acceptable = acceptable_recovery_lag
        self._lags = [client.lags for client in clients]
        self._rankings: dict[TaskId, Ranking] = {}

    def of(self, task: TaskId) -> Ranking:
        ranking = self._rankings.get(task)
        if ranking is None:
            lags = [client_lags[task] for client_lags in self._lags]
            ranking = self._rankings[task] = Ranking(self._clients, lags, self._acceptable)
        return ranking

    def belongs_elsewhere(self, client: ClientState, task: TaskId) -> bool:
        """Whether the client is not caught up on the task while another is further."""
        lag = client.lags[task]
        return not is_caught_up(lag, self._acceptable) and self.of(task).smallest_lag < lag


def is_caught_up(lag: int, acceptable_recovery_lag: int) -> bool:
    """Whether a client with this lag may take the task over at once."""
    return (
        0 <= lag <= acceptable_recovery_lag
        or lag == LATEST_OFFSET
        or acceptable_recovery_lag == MAX_LAG
    )
