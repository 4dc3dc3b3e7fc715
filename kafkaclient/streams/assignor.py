"""The assignor of KIP-441, as in Kafka Streams (``HighAvailabilityTaskAssignor.java``).

It first computes the balanced assignment, regardless of where state is: active tasks, then standbys
(KIP-708 spreads them by tags). Then it moves each task that the balanced assignment gives to a
client without the state: a caught-up client processes the task for now, and the intended client
gets a warm-up. Repeated after the warm-ups have caught up, the calculation converges to the
balanced assignment."""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import cycle, permutations
from operator import attrgetter
from typing import TYPE_CHECKING

from kafkaclient.errors import TaskAssignmentError
from kafkaclient.streams.clients import Assignment, Client, TaskMover, client_states

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from kafkaclient.streams.clients import AssignmentConfigs, ClientAssignment, ClientState
    from kafkaclient.streams.tasks import TaskId


def assign(
    clients: Mapping[UUID, Client],
    stateful_tasks: Collection[TaskId],
    stateless_tasks: Collection[TaskId],
    configs: AssignmentConfigs,
) -> Assignment:
    """The assignment of all tasks. Pure: it depends on the arguments only.

    An active stateful task goes to a client within ``acceptable.recovery.lag`` of the changelog's
    end, or, if there is none, to the client with the smallest lag. Standbys follow, then stateless
    tasks fill up the load. Earlier assignments count only through the lags.

    Raises :class:`~kafkaclient.errors.TaskAssignmentError` if there is no client, or if the lag of
    a stateful task is missing.
    """
    states = client_states(clients, frozenset(stateful_tasks))
    stateful = sorted(set(stateful_tasks))
    # Round-robin over sorted tasks spreads subtopologies.
    for task, client in zip(stateful, cycle(states), strict=False):
        client.active.add(task)
    _balance_tasks(states, attrgetter("active"))
    missing = assign_standbys(
        states, stateful, configs.num_standby_replicas, configs.rack_aware_assignment_tags
    )
    mover = TaskMover(states, configs.acceptable_recovery_lag, configs.max_warmup_replicas)
    movements = mover.move_actives()
    movements += mover.move_standbys()
    least_loaded = _LeastLoaded(states, lambda state: len(state.active) / state.capacity)
    for task in sorted(set(stateless_tasks) - set(stateful)):
        least_loaded.give(task, attrgetter("active"))
    return Assignment(
        clients={state.process_id: state.result() for state in states},
        movements=movements,
        missing_standbys=missing,
        probing_rebalance_needed=movements > 0,
    )


class _LeastLoaded:
    """Clients sorted by load, which may only change by :meth:`give`."""

    def __init__(
        self, clients: Iterable[ClientState], load: Callable[[ClientState], float]
    ) -> None:
        self._load = load
        self._entries = sorted((load(client), client.order, client) for client in clients)

    def give(
        self,
        task: TaskId,
        tasks_of: Callable[[ClientState], set[TaskId]],
        is_eligible: Callable[[ClientState], bool] = lambda _client: True,
    ) -> ClientState | None:
        """Add the task to the least loaded eligible client without a copy, and return the client.
        None if there is none."""
        for index, (_, _, client) in enumerate(self._entries):
            if not client.has(task) and is_eligible(client):
                del self._entries[index]
                tasks_of(client).add(task)
                insort(self._entries, (self._load(client), client.order, client))
                return client
        return None


def _balance_tasks(
    clients: Sequence[ClientState],
    tasks_of: Callable[[ClientState], set[TaskId]],
    *,
    same_tags: bool = False,
) -> None:
    """Move tasks of one kind between clients while that makes the numbers of tasks per consumer
    more equal (``HighAvailabilityTaskAssignor.balanceTasksOverThreads``). With ``same_tags``, tasks
    move only to clients with the same tags, so that a task's copies do not come closer."""
    moving = True
    while moving:
        moving = False
        for source, destination in permutations(clients, 2):
            if same_tags and not source.tags.items() <= destination.tags.items():
                continue
            if not _improves_balance(source, destination):
                continue
            for task in sorted(tasks_of(source)):
                if not destination.has(task):
                    tasks_of(source).remove(task)
                    tasks_of(destination).add(task)
                    moving = True
                    if not _improves_balance(source, destination):
                        break


def _improves_balance(source: ClientState, destination: ClientState) -> bool:
    """Whether moving one task reduces the difference in load without reversing it."""
    after = (source.count - 1) / source.capacity - (destination.count + 1) / destination.capacity
    return 0 <= after < source.load - destination.load


def assign_standbys(
    clients: Sequence[ClientState],
    stateful_tasks: Sequence[TaskId],
    num_standby_replicas: int,
    tags: Collection[str] = (),
) -> int:
    """Assign the standbys of each task in ``stateful_tasks``, which is sorted. Returns how many
    standbys found no client.

    The least loaded clients are taken first. With ``tags``, a standby goes to a client whose tags
    differ from the tags of the task's other copies, as far as there are enough tag values. Standbys
    that cannot be placed by tags go to the least loaded clients
    (``ClientTagAwareStandbyTaskAssignor``).
    """
    if num_standby_replicas == 0:
        return 0
    least_loaded = _LeastLoaded(clients, attrgetter("load"))
    wanted = dict.fromkeys(stateful_tasks, num_standby_replicas)
    if tags:
        _assign_by_tags(clients, wanted, frozenset(tags), least_loaded)
    for task in wanted:
        while wanted[task] and least_loaded.give(task, attrgetter("standby")):
            wanted[task] -= 1
    _balance_tasks(clients, attrgetter("standby"), same_tags=bool(tags))
    return sum(wanted.values())


def _assign_by_tags(
    clients: Sequence[ClientState],
    wanted: dict[TaskId, int],
    tags: Collection[str],
    least_loaded: _LeastLoaded,
) -> None:
    """Assign the standbys that tags allow, and subtract them from ``wanted``."""
    client_tags = [
        frozenset((tag, client.tags[tag]) for tag in tags if tag in client.tags)
        for client in clients
    ]
    values = Counter(tag for tag, _ in frozenset[tuple[str, str]]().union(*client_tags))
    owners = {task: client for client in clients for task in client.active}
    used: set[tuple[str, str]] = set()

    def has_other_tags(client: ClientState) -> bool:
        return used.isdisjoint(client_tags[client.order])

    for task, count in wanted.items():
        used = set()
        last = client_tags[owners[task].order]
        for copies in range(1, count + 1):
            # With as many copies as a tag has values, the tag excludes no more clients.
            used_up = {tag for tag, _ in last if values[tag] <= copies}
            used = {each for each in used | last if each[0] not in used_up}
            given = least_loaded.give(task, attrgetter("standby"), has_other_tags)
            if given is None:
                break
            last = client_tags[given.order]
            wanted[task] -= 1


# --- Distributes a client's tasks over its consumers ----------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTasks:
    """The tasks of one consumer, sorted."""

    active: tuple[TaskId, ...]
    standby: tuple[TaskId, ...]


def assign_tasks_to_threads(
    assignment: ClientAssignment,
    lags: Mapping[TaskId, int],
    previous: Mapping[str, Collection[TaskId]],
) -> dict[str, ConsumerTasks]:
    """Member id -> its part of the client's tasks
    (``StreamsPartitionAssignor.assignTasksToThreads``).

    ``previous``: member id -> stateful tasks that the consumer had copies of. A consumer keeps its
    previous tasks as far as the balance allows, those with the smallest lag first. The numbers of
    tasks of two consumers differ by at most one. The stateful tasks are the keys of ``lags``.

    Raises :class:`~kafkaclient.errors.TaskAssignmentError` if there is no consumer.
    """
    if not previous:
        raise TaskAssignmentError("tasks cannot be assigned to a client without consumers")
    consumers = sorted(previous)
    owned = {
        consumer: sorted(previous[consumer] & lags.keys(), key=lambda task: (lags[task], task))
        for consumer in consumers
    }
    stateful = assignment.active & lags.keys()
    loads = dict.fromkeys(consumers, 0)
    active = _distribute(stateful, owned, loads)
    standby = _distribute(assignment.standby, owned, loads)
    stateless = _distribute(assignment.active - stateful, {}, loads)
    return {
        consumer: ConsumerTasks(
            active=tuple(sorted(active[consumer] + stateless[consumer])),
            standby=tuple(sorted(standby[consumer])),
        )
        for consumer in consumers
    }


def _distribute(
    tasks: Collection[TaskId], owned: Mapping[str, Sequence[TaskId]], loads: dict[str, int]
) -> dict[str, list[TaskId]]:
    """Distribute the tasks in addition to ``loads``, and update ``loads``. All consumers have the
    same share, rounded down."""
    left = set(tasks)
    given: dict[str, list[TaskId]] = {consumer: [] for consumer in loads}
    share = (sum(loads.values()) + len(tasks)) // len(loads)

    def give(consumer: str, task: TaskId) -> None:
        left.remove(task)
        given[consumer].append(task)
        loads[consumer] += 1

    for consumer, previous in owned.items():
        for task in previous:
            if task in left and loads[consumer] < share:
                give(consumer, task)
    # Sorted tasks go to consumers below their share in turn, which mixes subtopologies.
    while left and (below_share := [each for each in loads if loads[each] < share]):
        for task, consumer in zip(sorted(left), below_share, strict=False):
            give(consumer, task)
    # Fewer tasks than consumers remain: previous owners first, then the other consumers.
    owners = {task: consumer for consumer, previous in owned.items() for task in previous}
    for task in sorted(left & owners.keys()):
        if loads[owners[task]] == share:
            give(owners[task], task)
    at_share = [consumer for consumer in loads if loads[consumer] == share]
    for task, consumer in zip(sorted(left), at_share, strict=False):
        give(consumer, task)
    return given


# --- The assignment without the changelogs' end offsets: every task stays where it is -------------


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
