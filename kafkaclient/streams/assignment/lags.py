"""The lag of each client's copy of a task, and which clients are caught up."""

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
    """The position that a member reports for a task: the sum of its stores' offsets.

    :data:`~kafkaclient.streams.tasks.LATEST_OFFSET` if any offset has this value, as for a running
    active task. Unknown offsets are left out. A sum above 63 bits is capped
    (``TaskManager.sumOfChangelogOffsets``). Raises ValueError for any other negative offset.
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

    ``end_offset_sums``: stateful task -> sum of its changelogs' end offsets, 0 for stores without
    changelog. ``offset_sums``: task -> position reported by the client's members; tasks that are
    not stateful are ignored. A copy with a position beyond the changelog's end counts as missing.
    """
    lags = dict(end_offset_sums)
    for task, offsets in offset_sums.items():
        end = end_offset_sums.get(task)
        if end is None or offsets > end:
            continue
        lags[task] = offsets if offsets in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM) else end - offsets
    return lags


class Ranking:
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
        for order in self._furthest_first:
            if order == client.order:
                return
            yield self._clients[order]

    @cached_property
    def _furthest_first(self) -> list[int]:
        return sorted(range(len(self._lags)), key=self._lags.__getitem__)


class Rankings:
    """The ranking of each task, computed on first use: most tasks do not need theirs."""

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
        """Whether the client is not caught up on the task and another client has a smaller lag."""
        lag = client.lags[task]
        return not is_caught_up(lag, self._acceptable) and self.of(task).smallest_lag < lag


def is_caught_up(lag: int, acceptable_recovery_lag: int) -> bool:
    """Whether a client with this lag may take over the task immediately."""
    return (
        0 <= lag <= acceptable_recovery_lag
        or lag == LATEST_OFFSET
        or acceptable_recovery_lag == MAX_LAG
    )
