"""The input and result of an assignment, and its clients; and the move of tasks to clients that are
caught up (``TaskMovement.java``).

If the balanced assignment gives a task to a client that is not caught up, a caught-up client gets
it for now. The intended client gets a warm-up, while the limit of warm-ups allows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError, TaskAssignmentError
from kafkaclient.streams.tasks import LATEST_OFFSET, MAX_LAG, UNKNOWN_OFFSET_SUM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
    from uuid import UUID

    from kafkaclient.streams.tasks import TaskId


_MAX_TAGS = 5
_LIMITS = (
    ("acceptable.recovery.lag", 0, MAX_LAG),
    ("max.warmup.replicas", 1, 2**31 - 1),
    ("num.standby.replicas", 0, 2**31 - 1),
    ("probing.rebalance.interval.ms", 60_000, MAX_LAG),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentConfigs:
    """Java's ``AssignmentConfigs``, with its defaults and limits. Raises
    :class:`~kafkaclient.errors.ConfigError`, which names the option as in Java."""

    acceptable_recovery_lag: int = 10_000
    """``acceptable.recovery.lag``: a client may take over a task while its copy lags at most this
    many records behind the changelogs. :data:`~kafkaclient.streams.topology.MAX_LAG`: no limit.
    """
    max_warmup_replicas: int = 2
    """``max.warmup.replicas``: maximum number of warm-ups at a time, over all tasks. A warm-up is a
    copy beyond ``num.standby.replicas``."""
    num_standby_replicas: int = 0
    """``num.standby.replicas``: number of standby copies of each stateful task."""
    probing_rebalance_interval_ms: int = 600_000
    """``probing.rebalance.interval.ms``: time between checks whether warm-ups have caught up."""
    rack_aware_assignment_tags: tuple[str, ...] = ()
    """``rack.aware.assignment.tags`` (KIP-708): a task's copies should differ in these tags."""

    def __post_init__(self) -> None:
        for name, lowest, highest in _LIMITS:
            value = getattr(self, name.replace(".", "_"))
            if not lowest <= value <= highest:
                raise ConfigError(f"{name} is {value}; it must be from {lowest} to {highest}")
        if len(self.rack_aware_assignment_tags) > _MAX_TAGS:
            raise ConfigError(
                f"rack.aware.assignment.tags names {len(self.rack_aware_assignment_tags)} tags; "
                f"at most {_MAX_TAGS} are allowed"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One process of the application, as its members' subscriptions describe it."""

    capacity: int = 1
    """Number of consumers (Kafka Streams: threads). The share of tasks is proportional to it."""
    lags: Mapping[TaskId, int]
    """Lag of the client's copy of each stateful task, in records, see
    :func:`task_lags`."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The client's ``client.tag.*`` options, such as ``{"zone": "eu-1"}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAssignment:
    """The tasks that one client gets."""

    active: frozenset[TaskId]
    """Tasks that the client processes."""
    standby: frozenset[TaskId]
    """Tasks of which the client keeps a copy up to date: standbys and warm-ups."""
    warmup: frozenset[TaskId]
    """The part of ``standby`` beyond ``num.standby.replicas``, which prepares moves of tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The tasks of all clients, and how far they are from the balanced assignment."""

    clients: Mapping[UUID, ClientAssignment]
    movements: int
    """Number of copies that are not yet where the balanced assignment has them."""
    missing_standbys: int
    """Number of standbys that found no client. More clients are needed."""
    probing_rebalance_needed: bool
    """Whether another rebalance should follow, to check whether warm-ups have caught up."""


class ClientState:
    """A client while tasks are assigned (Java: ``ClientState``)."""

    __slots__ = ("active", "capacity", "lags", "order", "process_id", "standby", "tags", "warmup")

    def __init__(self, order: int, process_id: UUID, client: Client) -> None:
        self.order = order
        """Rank of the client by process id; breaks ties."""
        self.process_id = process_id
        self.capacity = client.capacity
        self.lags = client.lags
        self.tags = client.tags
        self.active: set[TaskId] = set()
        self.standby: set[TaskId] = set()
        self.warmup: set[TaskId] = set()

    @property
    def count(self) -> int:
        return len(self.active) + len(self.standby)

    @property
    def load(self) -> float:
        return self.count / self.capacity

    def has(self, task: TaskId) -> bool:
        """Whether the client has the task, as active or as standby."""
        return task in self.active or task in self.standby

    def result(self) -> ClientAssignment:
        return ClientAssignment(
            active=frozenset(self.active),
            standby=frozenset(self.standby),
            warmup=frozenset(self.warmup),
        )


def client_states(clients: Mapping[UUID, Client], stateful_tasks: Set[TaskId]) -> list[ClientState]:
    """The clients sorted by process id, without tasks.

    Raises :class:`~kafkaclient.errors.TaskAssignmentError` if there is no client, or if a client
    has no capacity or lacks the lag of a task.
    """
    if not clients:
        raise TaskAssignmentError("there is no client to assign tasks to")
    for process_id, client in clients.items():
        if client.capacity < 1:
            raise TaskAssignmentError(
                f"client {process_id} has a capacity of {client.capacity}; it must be at least 1"
            )
        if missing := stateful_tasks - client.lags.keys():
            raise TaskAssignmentError(
                f"the lag of stateful task {min(missing)} on client {process_id} is not known"
            )
    return [
        ClientState(order, process_id, clients[process_id])
        for order, process_id in enumerate(sorted(clients))
    ]


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
