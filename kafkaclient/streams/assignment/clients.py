"""Clients: what they bring to an assignment, what they get, and how both stand meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkaclient.errors import TaskAssignmentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Set
    from uuid import UUID

    from kafkaclient.streams.tasks import TaskId

__all__ = ["Assignment", "Client", "ClientAssignment", "ClientState", "client_states"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One process of the application, as the leader knows it from its members' subscriptions."""

    capacity: int = 1
    """How many consumers (in Kafka Streams: threads) it has; its share of the work."""
    lags: Mapping[TaskId, int]
    """For every stateful task how many records its state there is behind, see
    :func:`~kafkaclient.streams.assignment.lags.task_lags`."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Its ``client.tag.*`` options, such as ``{"zone": "eu-1"}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAssignment:
    """What one client gets."""

    active: frozenset[TaskId]
    """It processes these."""
    standby: frozenset[TaskId]
    """It keeps copies of these up to date, be it as standbys or to warm up."""
    warmup: frozenset[TaskId]
    """Those of ``standby`` that it gets beyond ``num.standby.replicas``, to take over later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What every client gets, and how far that is from the balanced assignment."""

    clients: Mapping[UUID, ClientAssignment]
    movements: int
    """Copies that are not yet where the balanced assignment has them."""
    missing_standbys: int
    """Standbys that no client is left for; more clients are needed."""
    probing_rebalance_needed: bool
    """Whether to rebalance again when warm-ups may have caught up."""


class ClientState:
    """A client while tasks are dealt out: Java's ``ClientState``."""

    __slots__ = ("active", "capacity", "lags", "order", "process_id", "standby", "tags", "warmup")

    def __init__(self, order: int, process_id: UUID, client: Client) -> None:
        self.order = order
        """Its place among the clients by process id, which decides between equals."""
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
        return (len(self.active) + len(self.standby)) / self.capacity

    @property
    def active_load(self) -> float:
        return len(self.active) / self.capacity

    def has(self, task: TaskId) -> bool:
        """Whether it got a copy of the task, of either kind."""
        return task in self.active or task in self.standby

    def result(self) -> ClientAssignment:
        return ClientAssignment(
            active=frozenset(self.active),
            standby=frozenset(self.standby),
            warmup=frozenset(self.warmup),
        )


def client_states(clients: Mapping[UUID, Client], stateful_tasks: Set[TaskId]) -> list[ClientState]:
    """The clients in the order of their process ids, without tasks.

    Raises :class:`~kafkaclient.errors.TaskAssignmentError` when there is none, or when one has no
    capacity or lacks a task's lag.
    """
    if not clients:
        raise TaskAssignmentError("there is no client to assign tasks to")
    for process_id, client in clients.items():
        if client.capacity < 1:
            raise TaskAssignmentError(f"client {process_id} has a capacity of {client.capacity}")
        if missing := stateful_tasks - client.lags.keys():
            raise TaskAssignmentError(
                f"the lag of stateful task {min(missing)} on client {process_id} is not known"
            )
    return [
        ClientState(order, process_id, clients[process_id])
        for order, process_id in enumerate(sorted(clients))
    ]
