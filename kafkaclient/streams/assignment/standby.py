"""Standbys: copies of stateful tasks on other clients, and with KIP-708 on clients far away."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkaclient.streams.assignment.balance import LeastLoaded, to_any_client, balance_tasks

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
    """Give every sorted stateful task its standbys; returns how many found no client.

    Least loaded clients first. With ``tags`` a standby goes to a client that differs in as many of
    them from the task's other copies as there are values; what cannot be placed so goes to the
    least loaded ones nevertheless (``ClientTagAwareStandbyTaskAssignor``).
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
    """Returns how many of ``count`` standbys found no client without a copy."""
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
    """Place the standbys that tags allow, and take them off what is wanted."""
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
            # A tag with a copy at each of its values, or as good as, tells clients apart no more.
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
    """Says of a client whether it has no copy of the task and stands at none of the client_tags."""

    def is_eligible(client: ClientState) -> bool:
        return not client.has(task) and used.isdisjoint(client_tags[client.order])

    return is_eligible


def _same_tags(source: ClientState, destination: ClientState) -> bool:
    """Whether a standby may move without getting nearer to the task's other copies."""
    return source.tags.items() <= destination.tags.items()
