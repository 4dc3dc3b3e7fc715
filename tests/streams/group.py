"""A streams application from its leader's view, without brokers: clients, their copies, and the
assignments of successive rebalances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from kafkaclient.streams import Assignment, AssignmentConfigs, Client, TaskId, assign
from kafkaclient.streams.clients import task_lags
from kafkaclient.streams.tasks import LATEST_OFFSET

if TYPE_CHECKING:
    import random
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
    """``members``: client number -> offset of each copy on its disk."""

    stateful: Collection[TaskId]
    stateless: Collection[TaskId] = ()
    configs: AssignmentConfigs = field(default_factory=AssignmentConfigs)
    members: dict[int, dict[TaskId, int]] = field(default_factory=dict)
    capacities: dict[int, int] = field(default_factory=dict)
    tags: dict[int, dict[str, str]] = field(default_factory=dict)
    largest_capacity: int = 1
    last: Assignment | None = None

    def join(self, *numbers: int, capacity: int = 1) -> None:
        for number in numbers:
            self.members[number] = {}
            self.capacities[number] = capacity

    def leave(self, number: int) -> dict[TaskId, int]:
        """Remove the client. Returns the copies on its disk."""
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
        """Bring every copy up to date. Without ``keep``, delete copies that are not assigned."""
        assert self.last is not None
        for number, offsets in self.members.items():
            got = self.last.clients[process(number)]
            if not keep:
                offsets.clear()
            offsets.update(dict.fromkeys(offsets.keys() - got.active - got.standby, END // 2))
            offsets.update(dict.fromkeys(got.standby, END))
            offsets.update(dict.fromkeys(got.active & set(self.stateful), LATEST_OFFSET))

    def rebalance_until_stable(self, limit: int = 1000) -> int:
        """Rebalance until no probing rebalance is needed. Returns how many followed the first."""
        rounds = 0
        while self.rebalance().probing_rebalance_needed:
            rounds += 1
            assert rounds <= limit, f"not stable after {limit} rounds"
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
    """Client number -> active tasks and standbys, as text."""
    return {
        process_id.int: (_text(got.active), _text(got.standby))
        for process_id, got in assignment.clients.items()
    }


def _text(found: Iterable[TaskId]) -> str:
    return " ".join(map(str, sorted(found)))


def check_valid(assignment: Assignment, group: Group) -> None:
    """Check what holds for every assignment (Kafka's ``assertValidAssignment``, and KIP-441)."""
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
    """Check what holds once no task moves (such as ``assertBalancedTasks``)."""
    stateful = set(group.stateful)
    active, with_standbys = [], []
    for process_id, got in assignment.clients.items():
        capacity = group.capacities[process_id.int]
        active.append(len(got.active) / capacity)
        with_standbys.append(len((got.active & stateful) | got.standby) / capacity)
    assert max(active) - min(active) <= 1
    if len({group.capacities[number] for number in group.members}) == 1:
        if not group.configs.rack_aware_assignment_tags:
            assert max(with_standbys) - min(with_standbys) <= 1
        for subtopology in {task.subtopology for task in stateful}:
            counts = [
                sum(task.subtopology == subtopology for task in got.active)
                for got in assignment.clients.values()
            ]
            assert max(counts) - min(counts) <= 1


def random_group(rng: random.Random) -> Group:
    """A new application of up to eight clients."""
    subtopologies = rng.randrange(1, 5)
    tagged = rng.random() < 0.2
    group = Group(
        stateful=[TaskId(s, p) for s in range(subtopologies) for p in range(rng.randrange(1, 9))],
        stateless=[TaskId(9, p) for p in range(rng.randrange(9))],
        configs=AssignmentConfigs(
            acceptable_recovery_lag=rng.choice([0, 100, END // 2]),
            max_warmup_replicas=rng.randrange(1, 6),
            num_standby_replicas=rng.choice([0, 0, 1, 1, 2, 3]),
            rack_aware_assignment_tags=("zone",) if tagged else (),
        ),
    )
    group.largest_capacity = rng.choice([1, 1, 1, 3])
    for _ in range(rng.randrange(1, 9)):
        join_randomly(group, rng)
    return group


def join_randomly(group: Group, rng: random.Random) -> None:
    """A client joins, with an empty disk or with old copies."""
    number = max(group.members, default=0) + 1
    group.join(number, capacity=rng.randrange(1, group.largest_capacity + 1))
    if rng.random() < 0.5:
        found = rng.sample(list(group.stateful), rng.randrange(len(group.stateful) + 1))
        group.members[number] = {task: rng.choice([0, END // 3, END - 50, END]) for task in found}
    if group.configs.rack_aware_assignment_tags:
        group.tags[number] = {"zone": rng.choice("abc")}


def disturb(group: Group, rng: random.Random) -> None:
    """Some members leave, or crash and restart, or join."""
    event = rng.choice(["leave", "restart", "join"])
    if event == "join" or len(group.members) == 1:
        for _ in range(rng.randrange(1, 4)):
            join_randomly(group, rng)
        return
    for number in rng.sample(list(group.members), rng.randrange(1, len(group.members))):
        disk = group.leave(number)
        if event == "restart":
            group.join(number, capacity=group.capacities[number])
            # A running task's offset is not known after a crash. Some disks are lost.
            if rng.random() < 0.7:
                group.members[number] = {
                    task: rng.choice([END - 50, END - 20_000])
                    if offset == LATEST_OFFSET
                    else offset
                    for task, offset in disk.items()
                }


def check_convergence(rng: random.Random, events: int = 3) -> int:
    """Check KIP-441's convergence in one random history. Returns the number of rebalances.

    The assignment is balanced after at most one more probing rebalance than the warm-ups need. It
    does not change afterwards.
    """
    group = random_group(rng)
    rebalances = 0
    for _ in range(events):
        first = assignment = group.rebalance()
        bound = -(-first.movements // group.configs.max_warmup_replicas) + 1
        probing = 0
        keep = rng.random() < 0.5
        while assignment.probing_rebalance_needed:
            check_valid(assignment, group)
            group.catch_up(keep=keep)
            assignment = group.rebalance()
            probing += 1
            assert probing <= bound, f"{probing} rounds for {first.movements} movements"
        rebalances += 1 + probing
        check_valid(assignment, group)
        check_balanced(assignment, group)
        assert not any(got.warmup for got in assignment.clients.values())
        group.catch_up()
        assert group.rebalance() == assignment
        disturb(group, rng)
    return rebalances
