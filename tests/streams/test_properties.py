"""The properties that KIP-441 requires, on random clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.streams import AssignmentConfigs, Client, TaskId, assign
from kafkaclient.streams.clients import is_caught_up
from kafkaclient.streams.tasks import MAX_LAG
from tests.streams.group import END, Group, check_valid, show

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

task_ids = st.builds(TaskId, st.integers(0, 3), st.integers(0, 5))
offsets = st.sampled_from([0, 1, END // 2, END - 200, END - 100, END, -2])


@st.composite
def groups(draw: st.DrawFn) -> Group:
    stateful = draw(st.frozensets(task_ids, max_size=12))
    group = Group(
        stateful=stateful,
        stateless=draw(st.frozensets(task_ids, max_size=6)) - stateful,
        configs=AssignmentConfigs(
            acceptable_recovery_lag=draw(st.sampled_from([0, 100, END])),
            max_warmup_replicas=draw(st.integers(1, 4)),
            num_standby_replicas=draw(st.integers(0, 3)),
        ),
    )
    disks = st.dictionaries(st.sampled_from(sorted(stateful)), offsets) if stateful else st.just({})
    for number in draw(st.sets(st.integers(1, 9), min_size=1, max_size=6)):
        group.join(number, capacity=draw(st.integers(1, 3)))
        group.members[number] = draw(disks)
    return group


@given(groups())
def test_every_task_runs_once_where_it_is_furthest(group: Group) -> None:
    check_valid(group.rebalance(), group)


@given(groups())
def test_standbys_are_on_the_next_most_caught_up(group: Group) -> None:
    assignment, clients = group.rebalance(), group.clients()
    for process_id, got in assignment.clients.items():
        for task in got.standby - got.warmup:
            lag = clients[process_id].lags[task]
            if is_caught_up(lag, group.configs.acceptable_recovery_lag):
                continue
            for other, had in assignment.clients.items():
                if task not in had.active | had.standby:
                    assert clients[other].lags[task] >= lag


@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(group: Group, rng: random.Random) -> None:
    clients = list(group.clients().items())
    inputs = [clients, list(group.stateful), list(group.stateless)]
    for each in inputs:
        rng.shuffle(each)
    again = assign(dict(clients), inputs[1], inputs[2], group.configs)
    assert again == group.rebalance()


@given(groups())
def test_a_probing_rebalance_is_needed_only_while_tasks_move(group: Group) -> None:
    assignment = group.rebalance()
    assert assignment.probing_rebalance_needed is (assignment.movements > 0)
    if any(got.warmup for got in assignment.clients.values()):
        assert assignment.probing_rebalance_needed


@given(groups())
def test_without_a_lag_limit_there_are_no_warm_ups(group: Group) -> None:
    configs = AssignmentConfigs(acceptable_recovery_lag=MAX_LAG)
    assignment = assign(group.clients(), group.stateful, group.stateless, configs)
    assert not assignment.probing_rebalance_needed
    assert not any(got.standby for got in assignment.clients.values())


@given(groups())
def test_a_stable_assignment_does_not_change(group: Group) -> None:
    group.rebalance_until_stable()
    stable = group.last
    for _ in range(3):
        assert group.rebalance() == stable
        group.catch_up()


@given(groups())
def test_standbys_are_missing_only_where_clients_are(group: Group) -> None:
    wanted = group.configs.num_standby_replicas
    possible = min(wanted, len(group.members) - 1)
    assert group.rebalance().missing_standbys == len(group.stateful) * (wanted - possible)


@given(
    st.dictionaries(st.integers(1, 9), st.integers(1, 4), min_size=1),
    st.frozensets(task_ids, max_size=20),
)
def test_stateless_tasks_are_even_per_consumer(
    capacities: Mapping[int, int], stateless: frozenset[TaskId]
) -> None:
    clients = {UUID(int=n): Client(capacity=c, lags={}) for n, c in capacities.items()}
    assignment = assign(clients, (), stateless, AssignmentConfigs())
    loads = [len(got.active) / clients[p].capacity for p, got in assignment.clients.items()]
    assert max(loads) - min(loads) <= 1


def test_a_balanced_assignment_that_is_not_canonical_changes() -> None:
    """The exception to property 5, as Kafka Streams ships it."""
    group = Group(
        stateful=[TaskId(0, 0), TaskId(0, 1)],
        configs=AssignmentConfigs(acceptable_recovery_lag=0),
        members={1: {TaskId(0, 1): -2}, 2: {TaskId(0, 0): -2}},
        capacities={1: 1, 2: 1},
    )
    assignment = group.rebalance()
    assert show(assignment) == {1: ("0_1", "0_0"), 2: ("0_0", "0_1")}
    assert assignment.probing_rebalance_needed
    group.catch_up()
    assert show(group.rebalance()) == {1: ("0_0", ""), 2: ("0_1", "")}


def test_the_canonical_assignment_is_immediate_if_all_clients_are_caught_up() -> None:
    both = {TaskId(0, 0): END, TaskId(0, 1): END}
    group = Group(
        stateful=list(both),
        members={1: both | {TaskId(0, 1): -2}, 2: both | {TaskId(0, 0): -2}},
        capacities={1: 1, 2: 1},
    )
    assignment = group.rebalance()
    assert show(assignment) == {1: ("0_0", ""), 2: ("0_1", "")}
    assert not assignment.probing_rebalance_needed
