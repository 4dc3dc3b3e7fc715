"""Upstream: the states of ReassignPartitionsUnitTest, in its words."""

from __future__ import annotations

from kafkaclient.admin.reassign.outcome import MoveState, states
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import OngoingReassignment
from kafkaclient.wire.api import PartitionView

FOO0, FOO1, BAR0 = TopicPartition("foo", 0), TopicPartition("foo", 1), TopicPartition("bar", 0)


def view(*replicas: int) -> PartitionView:
    return PartitionView(0, leader=replicas[0], replicas=replicas, isr=replicas)


def test_states() -> None:
    """testFindPartitionReassignmentStates."""
    plan = {FOO0: (0, 1, 3), FOO1: (1, 2, 3)}
    ongoing = {FOO0: OngoingReassignment(FOO0, (0, 1, 3, 2), (3,), (2,))}
    views = {FOO0: view(0, 1, 3, 2), FOO1: view(1, 2, 3)}
    assert [(s.state, s.replicas) for s in states(plan, ongoing, views)] == [
        (MoveState.IN_PROGRESS, (0, 1, 3, 2)),
        (MoveState.COMPLETED, (1, 2, 3)),
    ]
    cancelled = states(plan, {}, views | {FOO0: view(0, 1, 2)})
    assert [(s.state, s.replicas) for s in cancelled] == [
        (MoveState.DIFFERENT, (0, 1, 2)),
        (MoveState.COMPLETED, (1, 2, 3)),
    ]


def test_states_in_words() -> None:
    """testPartitionReassignStatesToString: by topic, then partition."""
    plan = {FOO0: (1, 2, 3), FOO1: (1, 2, 4), BAR0: (1, 2, 3)}
    ongoing = {FOO1: OngoingReassignment(FOO1, (1, 2, 4, 3), (4,), (3,))}
    views = {FOO0: view(1, 2, 3), FOO1: view(1, 2, 4, 3), BAR0: view(1, 2)}
    assert [str(state) for state in states(plan, ongoing, views)] == [
        "There is no active reassignment of partition bar-0, but replica set is 1,2 rather than "
        "1,2,3.",
        "Reassignment of partition foo-0 is completed.",
        "Reassignment of partition foo-1 is still in progress.",
    ]


def test_a_partition_that_is_missing() -> None:
    """Java raises an IndexOutOfBoundsException for the one after a topic's last."""
    (state,) = states({FOO1: (1,)}, {}, {FOO0: view(1)})
    assert (state.state, state.replicas) == (MoveState.MISSING, ())
