"""KIP-441's scenarios: scaling out; a rolling bounce with standbys that are caught up, or lag."""

from __future__ import annotations

import pytest

from kafkaclient.streams import AssignmentConfigs, TaskId
from kafkaclient.streams.tasks import LATEST_OFFSET
from tests.streams.group import END, Group, process, show

FOUR = [TaskId(0, partition) for partition in range(4)]


def settled(*members: int, standbys: int, tasks: int = 4) -> Group:
    group = Group(stateful=FOUR[:tasks], configs=AssignmentConfigs(num_standby_replicas=standbys))
    group.join(*members)
    group.rebalance_until_stable()
    return group


def lag(group: Group, number: int, task: TaskId) -> int:
    return group.clients()[process(number)].lags[task]


@pytest.mark.parametrize("standbys", [0, 1])
def test_scaling_out_moves_no_task_before_its_state(standbys: int) -> None:
    group = settled(1, standbys=standbys)
    for newcomer in (2, 3):
        group.join(newcomer)
        first = assignment = group.rebalance()
        assert not first.clients[process(newcomer)].active
        assert first.clients[process(newcomer)].standby
        assert first.probing_rebalance_needed
        while True:
            for task, owner in group.owners().items():
                assert lag(group, owner, task) in {0, LATEST_OFFSET}
            group.catch_up()
            if not assignment.probing_rebalance_needed:
                break
            assignment = group.rebalance()
        counts = [len(got.active) for got in assignment.clients.values()]
        assert max(counts) - min(counts) <= 1


def bounce(group: Group, number: int, behind: int) -> list[dict[TaskId, int]]:
    """The member leaves, and comes back with its disk ``behind`` the others; returns who owned
    what after each rebalance."""
    owners = []
    disk = group.leave(number)
    group.rebalance()
    owners.append(group.owners())
    group.catch_up()
    group.join(number)
    group.members[number] = dict.fromkeys(disk, END - behind)
    group.rebalance()
    owners.append(group.owners())
    group.catch_up()
    group.rebalance_until_stable()
    owners.append(group.owners())
    return owners


def test_rolling_bounce_with_standbys_in_sync() -> None:
    group = settled(1, 2, 3, standbys=1)
    canonical, at_first = group.owners(), show(group.last)
    for number in (1, 2, 3):
        mine = [task for task, owner in canonical.items() if owner == number]
        holders = {
            task: [n for n in group.members if n != number and task in group.members[n]]
            for task in mine
        }
        away, back, settled_again = bounce(group, number, behind=50)
        for task in mine:
            assert away[task] in holders[task], "the standby takes over at once"
        # It comes back within acceptable.recovery.lag: no need to wait for anything.
        assert back == settled_again == canonical
    assert show(group.last) == at_first


def test_rolling_bounce_of_clients_that_come_back_with_less() -> None:
    group = settled(1, 2, 3, standbys=1)
    canonical = group.owners()
    for number in (1, 2, 3):
        mine = [task for task, owner in canonical.items() if owner == number]
        away, back, settled_again = bounce(group, number, behind=20_000)
        # The lag exceeds acceptable.recovery.lag: substitutes keep the tasks until warm-ups end.
        assert {task: back[task] for task in mine} == {task: away[task] for task in mine}
        assert settled_again == canonical


def test_with_lagging_standbys_tasks_go_to_the_furthest_and_back() -> None:
    group = settled(1, 2, 3, standbys=1)
    canonical = group.owners()
    mine = [task for task, owner in canonical.items() if owner == 1]
    for number in (2, 3):
        for task in mine:
            if task in group.members[number]:
                group.members[number][task] = END - 40_000
    disk = group.leave(1)
    group.rebalance()
    for task in mine:
        # Nobody is caught up: the lagging standby is further than who has nothing.
        assert lag(group, group.owners()[task], task) == 40_000
    # It is back before they have restored: its own copies are the furthest, and caught up.
    group.join(1)
    group.members[1] = dict.fromkeys(disk, END - 100)
    group.rebalance()
    assert group.owners() == canonical


def test_without_standbys_a_task_of_a_lost_client_starts_where_the_balance_has_it() -> None:
    group = settled(1, 2, standbys=0)
    group.leave(2)
    assignment = group.rebalance()
    assert show(assignment) == {1: ("0_0 0_1 0_2 0_3", "")}
    assert not assignment.probing_rebalance_needed
