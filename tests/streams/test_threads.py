"""Tasks of a client by its consumers: the cases of Kafka's StreamsPartitionAssignorTest, and what
always holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import TaskAssignmentError
from kafkaclient.streams import ClientAssignment, TaskId, assign_tasks_to_threads
from tests.streams.group import tasks

if TYPE_CHECKING:
    from collections.abc import Mapping

EIGHT = "0_0 0_1 0_2 0_3 1_0 1_1 1_2 1_3"
BEFORE = {"c1": tasks("0_0 1_1 1_3"), "c2": tasks("0_3 1_0"), "c3": tasks("0_1 0_2 1_2")}


def spread(
    active: str,
    previous: Mapping[str, frozenset[TaskId]],
    *,
    stateless: str = "",
    standby: str = "",
) -> dict[str, tuple[frozenset[TaskId], frozenset[TaskId]]]:
    stateful = tasks(active) | tasks(standby)
    found = assign_tasks_to_threads(
        ClientAssignment(
            active=tasks(active) | tasks(stateless), standby=tasks(standby), warmup=frozenset()
        ),
        dict.fromkeys(stateful, 0),
        previous,
    )
    return {name: (frozenset(own.active), frozenset(own.standby)) for name, own in found.items()}


def active_of(found: dict[str, tuple[frozenset[TaskId], frozenset[TaskId]]]) -> dict[str, object]:
    return {name: own[0] for name, own in found.items()}


def test_sticky_and_balanced_when_nothing_changes() -> None:
    assert active_of(spread(EIGHT, BEFORE)) == BEFORE


def test_sticky_and_balanced_when_new_tasks_are_added() -> None:
    assert active_of(spread(f"{EIGHT} 2_0", BEFORE)) == BEFORE | {"c2": tasks("0_3 1_0 2_0")}


def test_maximally_sticky_when_a_member_leaves() -> None:
    found = active_of(spread(EIGHT, {"c1": BEFORE["c1"], "c2": BEFORE["c2"]}))
    assert BEFORE["c1"] < found["c1"]
    assert BEFORE["c2"] < found["c2"]
    assert [len(own) for own in found.values()] == [4, 4]


def test_sticky_enough_when_a_new_member_joins() -> None:
    found = active_of(spread(EIGHT, BEFORE | {"c4": frozenset()}))
    assert found["c1"] < BEFORE["c1"]
    assert found["c2"] == BEFORE["c2"]
    assert found["c3"] < BEFORE["c3"]
    assert [len(own) for own in found.values()] == [2] * 4


def test_tasks_are_interleaved_by_group_in_a_new_assignment() -> None:
    no_tasks = dict.fromkeys(["c1", "c2", "c3"], frozenset[TaskId]())
    assert active_of(spread("0_0 0_1 0_2 0_3 1_0 1_1 1_2 2_0 2_1", no_tasks)) == {
        "c1": tasks("0_0 0_3 1_2"),
        "c2": tasks("0_1 1_0 2_0"),
        "c3": tasks("0_2 1_1 2_1"),
    }


def test_standbys_then_stateless_tasks_even_out_what_active_ones_leave() -> None:
    no_tasks = dict.fromkeys(["c1", "c2"], frozenset[TaskId]())
    found = spread("0_0 0_1 0_2", no_tasks, standby="1_0", stateless="2_0 2_1")
    assert found == {
        "c1": (tasks("0_0 0_2 2_0"), frozenset()),
        "c2": (tasks("0_1 2_1"), tasks("1_0")),
    }


def test_the_least_lagging_copy_is_kept() -> None:
    lags = {TaskId(0, 0): 500, TaskId(0, 1): 3, TaskId(0, 2): -2}
    found = assign_tasks_to_threads(
        ClientAssignment(active=frozenset(lags), standby=frozenset(), warmup=frozenset()),
        lags,
        {"c1": frozenset(lags), "c2": frozenset(), "c3": frozenset()},
    )
    assert found["c1"].active == (TaskId(0, 2),)


def test_a_client_without_consumers_raises() -> None:
    nothing = ClientAssignment(active=frozenset(), standby=frozenset(), warmup=frozenset())
    with pytest.raises(TaskAssignmentError, match="without consumers"):
        assign_tasks_to_threads(nothing, {}, {})


task_ids = st.builds(TaskId, st.integers(0, 3), st.integers(0, 5))
task_sets = st.frozensets(task_ids, max_size=15)


@given(
    task_sets,
    task_sets,
    task_sets,
    st.dictionaries(st.sampled_from("abcdef"), task_sets, min_size=1),
)
def test_each_task_is_assigned_once_and_evenly(
    active: frozenset[TaskId],
    standby: frozenset[TaskId],
    stateless: frozenset[TaskId],
    previous: dict[str, frozenset[TaskId]],
) -> None:
    standby -= active
    stateless -= active | standby
    assignment = ClientAssignment(active=active | stateless, standby=standby, warmup=frozenset())
    found = assign_tasks_to_threads(assignment, dict.fromkeys(active | standby, 7), previous)
    assert sorted(task for own in found.values() for task in own.active) == sorted(
        active | stateless
    )
    assert sorted(task for own in found.values() for task in own.standby) == sorted(standby)
    counts = [len(own.active) + len(own.standby) for own in found.values()]
    assert max(counts) - min(counts) <= 1
    stateful_counts = [len(active & set(own.active)) for own in found.values()]
    assert max(stateful_counts) - min(stateful_counts) <= 1
