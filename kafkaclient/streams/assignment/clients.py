"""The clients of an assignment: input, result, and state while tasks are assigned."""

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
    """One process of the application, as its members' subscriptions describe it."""

    capacity: int = 1
    """Number of consumers (Kafka Streams: threads). The share of tasks is proportional to it."""
    lags: Mapping[TaskId, int]
    """Lag of the client's copy of each stateful task, in records, see
    :func:`~kafkaclient.streams.assignment.lags.task_lags`."""
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

    @property
    def active_load(self) -> float:
        return len(self.active) / self.capacity

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
