"""The cases of Kafka's HighAvailabilityTaskAssignorTest (T1 to T22), by its names, and reference
assignments made with Kafka Streams 4.3.1 (R1 to R6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from kafkaclient.errors import ConfigError, TaskAssignmentError
from kafkaclient.streams import AssignmentConfigs, Client, assign
from kafkaclient.streams.tasks import MAX_LAG
from tests.streams.group import process, show, tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkaclient.streams import Assignment, TaskId

NINE = "0_0 0_1 0_2 1_0 1_1 1_2 2_0 2_1 2_2"
FOUR = "0_0 0_1 0_2 0_3"


def configs(acceptable: int, warmups: int, standbys: int) -> AssignmentConfigs:
    return AssignmentConfigs(
        acceptable_recovery_lag=acceptable,
        max_warmup_replicas=warmups,
        num_standby_replicas=standbys,
    )


def run(
    stateful: str,
    lags: Sequence[int | Sequence[int]],
    options: AssignmentConfigs,
    *,
    stateless: str = "",
    threads: Sequence[int] | None = None,
) -> Assignment:
    """``lags``: by client, of all stateful tasks, or of each in order."""
    wanted = sorted(tasks(stateful))
    clients = {}
    for number, given in enumerate(lags, 1):
        each = [given] * len(wanted) if isinstance(given, int) else given
        clients[process(number)] = Client(
            capacity=threads[number - 1] if threads else 1,
            lags=dict(zip(wanted, each, strict=True)),
        )
    return assign(clients, wanted, tasks(stateless), options)


def caught_up_on(stateful: str, *caught_up: str) -> list[list[int]]:
    """Lags of clients that are caught up on some tasks, and have nothing of the others."""
    wanted = sorted(tasks(stateful))
    return [[0 if task in tasks(own) else MAX_LAG for task in wanted] for own in caught_up]


def counts(assignment: Assignment) -> list[int]:
    return [len(got.active) + len(got.standby) for _, got in sorted(assignment.clients.items())]


def actives(assignment: Assignment) -> list[int]:
    return [len(got.active) for _, got in sorted(assignment.clients.items())]


def skews(assignment: Assignment) -> dict[int, int]:
    """By subtopology, the difference between the most and the least active tasks of a client."""
    found = {task.subtopology for got in assignment.clients.values() for task in got.active}
    per_client = [subtopologies(got.active) for got in assignment.clients.values()]
    return {
        subtopology: max(own.count(subtopology) for own in per_client)
        - min(own.count(subtopology) for own in per_client)
        for subtopology in found
    }


def subtopologies(found: Iterable[TaskId]) -> list[int]:
    return [task.subtopology for task in found]


class Reference(NamedTuple):
    stateful: str
    lags: Sequence[int | Sequence[int]]
    options: AssignmentConfigs
    stateless: str
    threads: Sequence[int] | None
    expected: dict[int, tuple[str, str]]
    probing: bool


REFERENCES = {
    "R1": Reference(
        FOUR,
        [[-2, 50_000, -2, 120], [30, -2, 90_000, -2], 90_000],
        configs(100, 2, 1),
        "1_0 1_1 1_2",
        (1, 2, 1),
        {
            1: ("0_2 1_1", "0_0 0_1 0_3"),
            2: ("0_0 0_1 0_3", "0_2"),
            3: ("1_0 1_2", "0_1 0_2"),
        },
        True,
    ),
    "R2": Reference(
        NINE,
        [0, 10, MAX_LAG],
        configs(11, 2, 1),
        "",
        None,
        {
            1: ("0_0 0_2 1_0 2_0 2_2", "0_1 1_1 1_2 2_1"),
            2: ("0_1 1_1 1_2 2_1", "0_0 0_2 1_0 2_0 2_2"),
            3: ("", "0_1 0_2"),
        },
        True,
    ),
    "R3": Reference(
        "0_0 0_1",
        [[100, -2], [-2, 100]],
        configs(0, 2, 0),
        "",
        None,
        {1: ("0_1", "0_0"), 2: ("0_0", "0_1")},
        True,
    ),
    "R4": Reference(
        "0_0 0_1",
        [[0, -2], [-2, 0]],
        configs(0, 2, 0),
        "",
        None,
        {1: ("0_0", ""), 2: ("0_1", "")},
        False,
    ),
    "R5": Reference(
        FOUR,
        [0, MAX_LAG],
        configs(100, 2, 0),
        "1_0 1_1 1_2",
        None,
        {1: (FOUR, ""), 2: ("1_0 1_1 1_2", "0_1 0_3")},
        True,
    ),
    "R6": Reference(
        NINE,
        [0, MAX_LAG, MAX_LAG],
        configs(MAX_LAG, 1, 1),
        "",
        None,
        {
            1: ("0_0 1_0 2_0", "0_2 2_1 2_2"),
            2: ("0_1 1_1 2_1", "0_0 1_2 2_0"),
            3: ("0_2 1_2 2_2", "0_1 1_0 1_1"),
        },
        False,
    ),
}


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
def test_assignments_made_by_kafka_streams(reference: Reference) -> None:
    assignment = run(
        reference.stateful,
        reference.lags,
        reference.options,
        stateless=reference.stateless,
        threads=reference.threads,
    )
    assert show(assignment) == reference.expected
    assert assignment.probing_rebalance_needed is reference.probing


def test_t1_should_be_sticky_for_active_and_standby_tasks_while_warming_up() -> None:
    assignment = run(NINE, [0, 10, MAX_LAG], configs(11, 2, 1))
    assert counts(assignment) == [9, 9, 2]
    assert assignment.clients[process(3)].warmup == tasks("0_1 0_2")
    assert assignment.probing_rebalance_needed


def test_t2_should_skip_warmups_when_acceptable_lag_is_max() -> None:
    assignment = run(NINE, [0, MAX_LAG, MAX_LAG], configs(MAX_LAG, 1, 1))
    assert counts(assignment) == [6, 6, 6]
    assert not assignment.probing_rebalance_needed


@pytest.mark.parametrize(
    ("stateful", "threads", "expected"),
    [
        (NINE, (1, 1, 1), [3, 3, 3]),
        (NINE, (3, 3, 3), [3, 3, 3]),
        (NINE, (9, 9, 9), [3, 3, 3]),
        (NINE, (1, 1), [5, 4]),
        ("0_0 0_1", (1, 1, 1), [1, 1, 0]),
    ],
)
def test_t3_should_assign_active_stateful_tasks_evenly(
    stateful: str, threads: tuple[int, ...], expected: list[int]
) -> None:
    assignment = run(stateful, [10] * len(threads), configs(0, 1, 0), threads=threads)
    assert actives(assignment) == counts(assignment) == expected
    assert max(skews(assignment).values()) <= 1
    assert not assignment.probing_rebalance_needed


def test_t4_evenly_over_unevenly_distributed_stream_threads() -> None:
    assignment = run("0_0 0_1 0_2 1_0 1_1 1_2", [10] * 3, configs(0, 1, 0), threads=(1, 2, 3))
    assert show(assignment) == {1: ("1_0", ""), 2: ("0_1 1_1", ""), 3: ("0_0 0_2 1_2", "")}
    assert max(skews(assignment).values()) > 1
    assert not assignment.probing_rebalance_needed


def test_t5_evenly_over_stream_threads_but_best_effort_over_clients() -> None:
    assignment = run(NINE, [10, 10], configs(0, 1, 0), threads=(6, 3))
    assert actives(assignment) == [6, 3]
    assert not assignment.probing_rebalance_needed


def test_t6_should_assign_warmups_if_balanced_over_threads_but_not_over_clients() -> None:
    assignment = run("0_0 0_1 1_0 1_1", [0, MAX_LAG, MAX_LAG], configs(0, 2, 0), threads=(5, 5, 5))
    assert show(assignment) == {1: ("0_0 0_1 1_0 1_1", ""), 2: ("", "0_1"), 3: ("", "1_0")}
    assert assignment.probing_rebalance_needed


def test_t7_should_evenly_assign_if_clients_are_warmed_up() -> None:
    four = "0_0 0_1 1_0 1_1"
    lags = caught_up_on(four, four, "0_1", "1_0")
    assignment = run(four, lags, configs(0, 2, 0), threads=(5, 5, 5))
    assert show(assignment) == {1: ("0_0 1_1", ""), 2: ("0_1", ""), 3: ("1_0", "")}
    assert not assignment.probing_rebalance_needed


def test_t8_if_there_are_unassigned_active_tasks() -> None:
    assignment = run("0_0", [0], configs(100, 2, 0), stateless="0_1")
    assert show(assignment) == {1: ("0_0 0_1", "")}
    assert not assignment.probing_rebalance_needed


def test_t9_if_there_are_unassigned_standby_tasks() -> None:
    assignment = run("0_0", [0, 0], configs(100, 2, 1))
    assert show(assignment) == {1: ("0_0", ""), 2: ("", "0_0")}
    assert not assignment.probing_rebalance_needed


def test_t10_if_active_task_was_not_on_caught_up_client() -> None:
    assignment = run("0_0", [500, 0], configs(100, 2, 0), stateless="0_1")
    assert show(assignment) == {1: ("0_1", "0_0"), 2: ("0_0", "")}
    assert assignment.probing_rebalance_needed


def test_t11_should_assign_to_most_caught_up() -> None:
    assignment = run("0_0", [MAX_LAG, 1000, 500], configs(100, 2, 1))
    assert show(assignment) == {1: ("", "0_0"), 2: ("", "0_0"), 3: ("0_0", "")}
    assert assignment.probing_rebalance_needed


def test_t12_should_assign_standbys_for_stateful_tasks() -> None:
    assignment = run("0_0 0_1", caught_up_on("0_0 0_1", "0_0", "0_1"), configs(100, 2, 1))
    assert show(assignment) == {1: ("0_0", "0_1"), 2: ("0_1", "0_0")}
    assert not assignment.probing_rebalance_needed


def test_t13_should_not_assign_standbys_for_stateless_tasks() -> None:
    assignment = run("", [0, 0], configs(100, 2, 1), stateless="0_0 0_1")
    assert show(assignment) == {1: ("0_0", ""), 2: ("0_1", "")}
    assert not assignment.probing_rebalance_needed


def test_t14_should_not_assign_more_than_max_warmup_replicas() -> None:
    assignment = run(FOUR, [0, MAX_LAG], configs(100, 1, 0))
    assert show(assignment) == {1: (FOUR, ""), 2: ("", "0_1")}
    assert assignment.probing_rebalance_needed


def test_t15_should_not_assign_warmup_and_standby_to_the_same_client() -> None:
    assignment = run(FOUR, [0, MAX_LAG], configs(100, 1, 1))
    assert show(assignment) == {1: (FOUR, ""), 2: ("", FOUR)}
    assert assignment.probing_rebalance_needed


def test_t16_should_not_assign_any_standbys_with_insufficient_capacity() -> None:
    assignment = run("0_0 0_1", [0], configs(100, 2, 1))
    assert show(assignment) == {1: ("0_0 0_1", "")}
    assert assignment.missing_standbys == 2
    assert not assignment.probing_rebalance_needed


def test_t17_should_assign_active_tasks_to_not_caught_up_client_if_none_exist() -> None:
    assignment = run("0_0 0_1", [MAX_LAG], configs(100, 2, 1))
    assert show(assignment) == {1: ("0_0 0_1", "")}
    assert not assignment.probing_rebalance_needed


def test_t18_should_not_assign_more_than_max_warmup_replicas_with_standbys() -> None:
    assignment = run(FOUR, [0, MAX_LAG, MAX_LAG], configs(100, 2, 1))
    got = show(assignment)
    assert got[1] == (FOUR, "")
    assert got[2] == ("", FOUR)
    assert len(assignment.clients[process(3)].standby) == 2
    assert assignment.probing_rebalance_needed


def test_t19_should_distribute_stateless_tasks_to_balance_total_task_load() -> None:
    assignment = run(FOUR, [0, MAX_LAG], configs(100, 2, 0), stateless="1_0 1_1 1_2")
    assert show(assignment) == {1: (FOUR, ""), 2: ("1_0 1_1 1_2", "0_1 0_3")}
    assert max(skews(assignment).values()) > 1
    assert assignment.probing_rebalance_needed


def test_t20_should_distribute_stateful_active_tasks_to_all_clients() -> None:
    stateful = "0_0 0_1 0_2 0_3 1_0 1_1 1_2 1_3 2_0"
    assignment = run(stateful, [0, 0, 0], configs(100, 2, 0), threads=(100, 50, 1))
    assert actives(assignment) == [6, 2, 1]
    assert not assignment.probing_rebalance_needed


def test_t21_should_return_false_if_previous_assignment_is_reused() -> None:
    assignment = run(FOUR, caught_up_on(FOUR, "0_0 0_2", "0_1 0_3"), configs(100, 2, 0))
    assert show(assignment) == {1: ("0_0 0_2", ""), 2: ("0_1 0_3", "")}
    assert not assignment.probing_rebalance_needed


@pytest.mark.parametrize(
    ("threads", "expected"),
    [((7, 7, 7), [3, 2, 2]), ((2, 2, 2), [3, 2, 2]), ((1, 2, 3), [2, 2, 3])],
)
def test_t22_should_distribute_stateless_tasks_evenly(
    threads: tuple[int, ...], expected: list[int]
) -> None:
    stateless = "0_0 0_1 0_2 0_3 1_0 1_1 1_2"
    assignment = run("", [0, 0, 0], configs(0, 1, 0), stateless=stateless, threads=threads)
    assert actives(assignment) == expected
    assert not assignment.probing_rebalance_needed


def test_stateful_tasks_are_not_taken_for_stateless_ones() -> None:
    assignment = run("0_0", [0, 0], configs(0, 1, 0), stateless="0_0 0_1")
    assert show(assignment) == {1: ("0_0", ""), 2: ("0_1", "")}


def test_an_assignment_needs_clients_capacity_and_lags() -> None:
    options = AssignmentConfigs()
    with pytest.raises(TaskAssignmentError, match="no client"):
        assign({}, tasks("0_0"), (), options)
    with pytest.raises(TaskAssignmentError, match="capacity of 0"):
        assign({process(1): Client(capacity=0, lags={})}, (), (), options)
    with pytest.raises(TaskAssignmentError, match=r"stateful task 0_1 on client .*01 is not known"):
        assign(
            {process(1): Client(lags=dict.fromkeys(tasks("0_0"), 0))}, tasks("0_0 0_1"), (), options
        )


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("acceptable.recovery.lag", {"acceptable_recovery_lag": -1}),
        ("max.warmup.replicas", {"max_warmup_replicas": 0}),
        ("num.standby.replicas", {"num_standby_replicas": -1}),
        ("probing.rebalance.interval.ms", {"probing_rebalance_interval_ms": 59_999}),
        ("rack.aware.assignment.tags", {"rack_aware_assignment_tags": tuple("abcdef")}),
    ],
)
def test_options_have_javas_limits(name: str, option: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=name):
        AssignmentConfigs(**option)
