"""Assigns standbys: copies of stateful tasks on other clients, with KIP-708 spread by tags."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkaclient.streams.assignment.balance import LeastLoaded, balance_tasks, to_any_client

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence, Set

    from kafkaclient.streams.assignment.clients import ClientState
    from kafkaclient.streams.tasks import TaskId

__all__ = ["assign_standbys"]


def assign_standbys(
    clients: Sequence[ClientState],
    stateful_tasks: Sequence[TaskId],
    num_standby_replicas: int,
    tags: Collection[str] = (),
) -> int:
    """Assign the standbys of each task in ``stateful_tasks``, which is sorted. Returns how many
    standbys found no client.

    The least loaded clients are taken first. With ``tags``, a standby goes to a client whose tags
    differ from those of the task's other copies, as far as there are enough tag values. Standbys
    that cannot be placed by tags go to the least loaded clients
    (``ClientTagAwareStandbyTaskAssignor``).
    """
    if num_standby_replicas == 0:
        return 0
    least_loaded = LeastLoaded(clients, lambda client: client.load)
    wanted = dict.fromkeys(stateful_tasks, num_standby_replicas)
    if tags:
        _assign_by_tags(clients, wanted, frozenset(tags), least_loaded)
    missing = sum(_assign_least_loaded(task, count, least_loaded) for task, count in wanted.items())
    balance_tasks(clients, lambda client: client.standby, _same_tags if tags else to_any_client)
    return missing


def _assign_least_loaded(task: TaskId, count: int, least_loaded: LeastLoaded) -> int:
    """Assign standbys to the least loaded clients without a copy. Returns how many failed."""
    for left in range(count, 0, -1):
        client = least_loaded.take(lambda client: not client.has(task))
        if client is None:
            return left
        client.standby.add(task)
        least_loaded.put(client)
    return 0


def _assign_by_tags(
    clients: Sequence[ClientState],
    wanted: dict[TaskId, int],
    tags: Collection[str],
    least_loaded: LeastLoaded,
) -> None:
    """Assign the standbys that tags allow, and subtract them from ``wanted``."""
    client_tags = [
        frozenset((tag, client.tags[tag]) for tag in tags if tag in client.tags)
        for client in clients
    ]
    values = Counter(tag for tag, _ in frozenset[tuple[str, str]]().union(*client_tags))
    owners = {task: client for client in clients for task in client.active}
    for task, count in wanted.items():
        used: set[tuple[str, str]] = set()
        last = owners[task]
        for copies in range(1, count + 1):
            # With as many copies as a tag has values, the tag excludes no more clients.
            used_up = {tag for tag, _ in client_tags[last.order] if values[tag] <= copies}
            used = {
                tag_value
                for tag_value in used | client_tags[last.order]
                if tag_value[0] not in used_up
            }
            client = least_loaded.take(_eligible(task, client_tags, used))
            if client is None:
                break
            client.standby.add(task)
            least_loaded.put(client)
            wanted[task] -= 1
            last = client


def _eligible(
    task: TaskId,
    client_tags: Sequence[frozenset[tuple[str, str]]],
    used: Set[tuple[str, str]],
) -> Callable[[ClientState], bool]:
    """A predicate: whether a client has no copy of the task and none of the ``used`` tag values."""

    def is_eligible(client: ClientState) -> bool:
        return not client.has(task) and used.isdisjoint(client_tags[client.order])

    return is_eligible


def _same_tags(source: ClientState, destination: ClientState) -> bool:
    """Whether the destination has the source's tags, so that copies do not come closer."""
    return source.tags.items() <= destination.tags.items()
