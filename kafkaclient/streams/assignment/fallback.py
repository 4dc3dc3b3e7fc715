"""The assignment without the changelogs' end offsets: every task stays where it is."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from kafkaclient.errors import TaskAssignmentError
from kafkaclient.streams.assignment.clients import Assignment, Client, ClientState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from kafkaclient.streams.tasks import TaskId

__all__ = ["PriorOwner", "assign_to_prior_owners"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorOwner:
    """A client with its tasks of the previous assignment."""

    capacity: int = 1
    active: Collection[TaskId] = ()
    standby: Collection[TaskId] = ()


def assign_to_prior_owners(
    clients: Mapping[UUID, PriorOwner],
    stateful_tasks: Collection[TaskId],
    stateless_tasks: Collection[TaskId],
    num_standby_replicas: int,
) -> Assignment:
    """The previous assignment, with another rebalance soon (``FallbackPriorTaskAssignor``).

    An active task goes to its previous client, else to one with a standby, else to the least
    loaded. A standby goes to a previous standby client, else to the previous active one, else to
    the least loaded. Raises :class:`~kafkaclient.errors.TaskAssignmentError` if there is no client.
    """
    if not clients:
        raise TaskAssignmentError("there is no client to assign tasks to")
    states = {
        process_id: ClientState(
            order, process_id, Client(capacity=clients[process_id].capacity, lags={})
        )
        for order, process_id in enumerate(sorted(clients))
    }
    stateful = sorted(set(stateful_tasks))
    actives = _clients_by_task(states, {name: owner.active for name, owner in clients.items()})
    standbys = _clients_by_task(states, {name: owner.standby for name, owner in clients.items()})
    missing = 0
    everywhere = list(states.values())
    for task in sorted({*stateful, *stateless_tasks}):
        client = _least_loaded((actives.get(task, ()), standbys.get(task, ()), everywhere), task)
        assert client is not None
        client.active.add(task)
    for task in stateful:
        for left in range(num_standby_replicas, 0, -1):
            client = _least_loaded(
                (standbys.get(task, ()), actives.get(task, ()), everywhere), task
            )
            if client is None:
                missing += left
                break
            client.standby.add(task)
    return Assignment(
        clients={process_id: state.result() for process_id, state in states.items()},
        movements=0,
        missing_standbys=missing,
        probing_rebalance_needed=True,
    )


def _clients_by_task(
    states: Mapping[UUID, ClientState], tasks: Mapping[UUID, Iterable[TaskId]]
) -> dict[TaskId, list[ClientState]]:
    found: dict[TaskId, list[ClientState]] = {}
    for process_id, state in states.items():
        for task in tasks[process_id]:
            found.setdefault(task, []).append(state)
    return found


def _least_loaded(choices: Iterable[Sequence[ClientState]], task: TaskId) -> ClientState | None:
    """The least loaded client without the task, from the first of ``choices`` that has one."""
    for clients in choices:
        without = [client for client in clients if not client.has(task)]
        if without:
            return min(without, key=attrgetter("load"))
    return None
