"""From any state to the balanced assignment: Kafka's TaskAssignorConvergenceTest, and KIP-441's
properties in random histories. integration/test_streams_convergence.py checks many more."""

from __future__ import annotations

import random

import pytest

from kafkaclient.streams import AssignmentConfigs, TaskId
from tests.streams.group import Group, check_balanced, check_convergence, check_valid


def application(stateless: int, stateful: int, clients: int) -> Group:
    """Five tasks per subtopology, as upstream."""
    group = Group(
        stateless=[TaskId(n // 5, n % 5) for n in range(stateless)],
        stateful=[TaskId(10 + n // 5, n % 5) for n in range(stateful)],
        configs=AssignmentConfigs(acceptable_recovery_lag=100, max_warmup_replicas=2),
    )
    group.join(*range(clients))
    return group


def actives(group: Group) -> list[int]:
    owners = list(group.owners().values())
    return sorted(owners.count(number) for number in group.members)


def test_static_assignment_should_converge_with_the_first_assignment() -> None:
    group = application(1, 1, 1)
    assert group.rebalance_until_stable() == 0


def test_assignment_should_converge_after_adding_node() -> None:
    group = application(7, 11, 1)
    assert group.rebalance_until_stable() == 0
    group.join(1)
    # Four assignments: three that leave something to do, and the balanced one.
    assert group.rebalance_until_stable() == 3
    assert actives(group) == [9, 9]
    assert group.last is not None
    check_valid(group.last, group)
    check_balanced(group.last, group)


def test_dropping_nodes_should_converge() -> None:
    group = application(11, 13, 7)
    assert group.rebalance_until_stable() == 0
    group.leave(0)
    assert group.rebalance_until_stable() + 1 == 7 <= 13 // 2 + 2
    assert actives(group) == [4] * 6
    assert group.last is not None
    check_balanced(group.last, group)


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_converge(seed: int) -> None:
    assert check_convergence(random.Random(seed)) >= 3
