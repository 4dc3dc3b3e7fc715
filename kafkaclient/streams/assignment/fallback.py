"""The assignment without the changelogs' end offsets: every task stays where it is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from kafkaclient.streams.assignment.clients import Assignment, Client, client_states

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from kafkaclient.streams.assignment.clients import ClientState
    from kafkaclient.streams.tasks import TaskId


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
    inputs = {
        process_id: Client(capacity=owner.capacity, lags={})
        for process_id, owner in clients.items()
    }
    states = client_states(inputs, frozenset())
    actives: defaultdict[TaskId, list[ClientState]] = defaultdict(list)
    standbys: defaultdict[TaskId, list[ClientState]] = defaultdict(list)
    for state in states:
        for task in clients[state.process_id].active:
            actives[task].append(state)
        for task in clients[state.process_id].standby:
            standbys[task].append(state)
    stateful = sorted(set(stateful_tasks))
    missing = 0
    for task in sorted({*stateful, *stateless_tasks}):
        client = _least_loaded((actives[task], standbys[task], states), task)
        assert client is not None
        client.active.add(task)
    for task in stateful:
        for left in range(num_standby_replicas, 0, -1):
            client = _least_loaded((standbys[task], actives[task], states), task)
            if client is None:
                missing += left
                break
            client.standby.add(task)
    return Assignment(
        clients={state.process_id: state.result() for state in states},
        movements=0,
        missing_standbys=missing,
        probing_rebalance_needed=True,
    )


def _least_loaded(choices: Iterable[Sequence[ClientState]], task: TaskId) -> ClientState | None:
    """The least loaded client without the task, from the first of ``choices`` that has one."""
    for clients in choices:
        if without := [client for client in clients if not client.has(task)]:
            return min(without, key=attrgetter("load"))
    return None
