"""A streams application as its leader sees it, without brokers: clients, what they hold, and what
becomes of it from one rebalance to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from kafkaclient.streams import Assignment, AssignmentConfigs, Client, TaskId, assign
from kafkaclient.streams.assignment.lags import task_lags
from kafkaclient.streams.tasks import LATEST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

END = 150_000
"""The length of every changelog, as in Kafka's TaskAssignorConvergenceTest."""


def tasks(text: str) -> frozenset[TaskId]:
    """``tasks("0_0 0_1")``."""
    return frozenset(map(TaskId.parse, text.split()))


def process(number: int) -> UUID:
    return UUID(int=number)


@dataclass
class Group:
    """``members``: by number, what each has on its disk: the offset of every copy."""

    stateful: Collection[TaskId]
    stateless: Collection[TaskId] = ()
    configs: AssignmentConfigs = field(default_factory=AssignmentConfigs)
    members: dict[int, dict[TaskId, int]] = field(default_factory=dict)
    capacities: dict[int, int] = field(default_factory=dict)
    last: Assignment | None = None

    def join(self, *numbers: int, capacity: int = 1) -> None:
        for number in numbers:
            self.members[number] = {}
            self.capacities[number] = capacity

    def leave(self, number: int) -> dict[TaskId, int]:
        """Returns what is left on its disk."""
        return self.members.pop(number)

    def clients(self) -> dict[UUID, Client]:
        ends = dict.fromkeys(self.stateful, END)
        return {
            process(number): Client(capacity=self.capacities[number], lags=task_lags(ends, offsets))
            for number, offsets in self.members.items()
        }

    def rebalance(self) -> Assignment:
        self.last = assign(self.clients(), self.stateful, self.stateless, self.configs)
        return self.last

    def catch_up(self, *, keep: bool = False) -> None:
        """Until the next rebalance every copy is brought up to date; those that were taken away
        are deleted, unless their directories are kept."""
        assert self.last is not None
        for number, offsets in self.members.items():
            got = self.last.clients[process(number)]
            if not keep:
                offsets.clear()
            offsets.update(dict.fromkeys(offsets.keys() - got.active - got.standby, END // 2))
            offsets.update(dict.fromkeys(got.standby, END))
            offsets.update(dict.fromkeys(got.active & set(self.stateful), LATEST_OFFSET))

    def settle(self, limit: int = 1000) -> int:
        """Rebalance until it is wanted no more; returns how many times after the first."""
        rounds = 0
        while self.rebalance().probing_rebalance_needed:
            rounds += 1
            assert rounds <= limit, f"not settled after {limit} rounds"
            self.catch_up()
        self.catch_up()
        return rounds

    def owners(self) -> dict[TaskId, int]:
        assert self.last is not None
        return {
            task: process_id.int
            for process_id, got in self.last.clients.items()
            for task in got.active
        }


def show(assignment: Assignment) -> dict[int, tuple[str, str]]:
    """By client number, active tasks and standbys as text."""
    return {
        process_id.int: (_text(got.active), _text(got.standby))
        for process_id, got in assignment.clients.items()
    }


def _text(found: Iterable[TaskId]) -> str:
    return " ".join(map(str, sorted(found)))


def check_valid(assignment: Assignment, group: Group) -> None:
    """What must hold of any assignment (Kafka's ``assertValidAssignment``, and what KIP-441 says
    of it)."""
    stateful, stateless = set(group.stateful), set(group.stateless)
    lags: Mapping[UUID, Client] = group.clients()
    configs = group.configs
    copies: dict[TaskId, int] = dict.fromkeys(stateful | stateless, 0)
    actives: list[TaskId] = []
    warmups = 0
    for got in assignment.clients.values():
        assert not got.active & got.standby
        assert got.warmup <= got.standby <= stateful
        actives += got.active
        warmups += len(got.warmup)
        for task in got.standby:
            copies[task] += 1
    assert sorted(actives) == sorted(stateful | stateless)
    assert warmups <= configs.max_warmup_replicas
    wanted = min(configs.num_standby_replicas, len(lags) - 1)
    for task in stateful:
        assert copies[task] >= wanted
    assert sum(copies.values()) <= wanted * len(stateful) + warmups
    _check_caught_up(assignment, lags, stateful, configs.acceptable_recovery_lag)


def _check_caught_up(
    assignment: Assignment, clients: Mapping[UUID, Client], stateful: set[TaskId], acceptable: int
) -> None:
    for process_id, got in assignment.clients.items():
        for task in got.active & stateful:
            lags = [client.lags[task] for client in clients.values()]
            lag = clients[process_id].lags[task]
            if any(0 <= other <= acceptable or other == LATEST_OFFSET for other in lags):
                assert 0 <= lag <= acceptable or lag == LATEST_OFFSET
            else:
                assert lag == min(lags)


def check_balanced(assignment: Assignment, group: Group) -> None:
    """What holds once nothing moves any more (``assertBalancedTasks`` and its like)."""
    stateful = set(group.stateful)
    active, with_standbys = [], []
    for process_id, got in assignment.clients.items():
        capacity = group.capacities[process_id.int]
        active.append(len(got.active) / capacity)
        with_standbys.append(len((got.active & stateful) | got.standby) / capacity)
    assert max(active) - min(active) <= 1
    assert max(with_standbys) - min(with_standbys) <= 1
    if len({group.capacities[number] for number in group.members}) == 1:
        for subtopology in {task.subtopology for task in stateful}:
            counts = [
                sum(task.subtopology == subtopology for task in got.active)
                for got in assignment.clients.values()
            ]
            assert max(counts) - min(counts) <= 1
