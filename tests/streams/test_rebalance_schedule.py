"""When a member requests a rebalance."""

from __future__ import annotations

from kafkaclient.streams import TaskId
from kafkaclient.streams.group_protocol import NO_REBALANCE
from kafkaclient.streams.leader import RebalanceSchedule
from tests.streams.fakes import Clock

A, B = TaskId(0, 0), TaskId(0, 1)
WALL = 1_700_000_000.0


def schedule(clock: Clock) -> RebalanceSchedule:
    return RebalanceSchedule(100, clock, lambda: WALL + clock.now - 100.0)


def in_ms(seconds: float) -> int:
    return int((WALL + seconds) * 1000)


def test_a_stable_assignment_schedules_no_rebalance() -> None:
    clock = Clock()
    wanted = schedule(clock)
    wanted.assigned(NO_REBALANCE, [A], leader=True)
    wanted.observe(A, 100_000)
    wanted.observe(A, 0)
    clock.now += 1e9
    assert not wanted.take_due()


def test_only_the_leader_waits_for_the_probing_interval() -> None:
    clock = Clock()
    leader, follower = schedule(clock), schedule(clock)
    leader.assigned(in_ms(600), [], leader=True)
    follower.assigned(in_ms(600), [], leader=False)
    clock.now += 599.9
    assert not leader.take_due()
    clock.now += 0.2
    assert leader.take_due()
    assert not leader.take_due(), "requested twice"
    assert not follower.take_due()


def test_a_copy_that_catches_up_requests_one_rebalance() -> None:
    clock = Clock()
    wanted = schedule(clock)
    wanted.assigned(in_ms(600), [A, B], leader=False)
    wanted.observe(A, 101)
    assert wanted.due_at is None
    wanted.observe(A, 100)
    assert not wanted.take_due(), "not debounced"
    clock.now += 0.25
    wanted.observe(B, 0)
    clock.now += 0.26
    assert wanted.take_due(), "the second copy has put off the first one's rebalance"
    wanted.observe(A, 5)
    clock.now += 1
    assert not wanted.take_due()


def test_a_reported_copy_requests_no_rebalance() -> None:
    clock = Clock()
    wanted = schedule(clock)
    wanted.assigned(in_ms(600), [A, B], leader=False)
    wanted.observe(A, 0)
    wanted.subscribed([])
    wanted.observe(B, 0)  # too late for the subscription
    wanted.assigned(in_ms(600), [A, B], leader=False)
    assert wanted.due_at is None, "an earlier wish survived the assignment"
    wanted.observe(A, 0)
    assert wanted.due_at is None
    wanted.observe(B, 0)
    assert wanted.due_at is not None


def test_the_copy_left_by_a_moved_task_requests_nothing() -> None:
    """The leader already counts it as caught up."""
    clock = Clock()
    wanted = schedule(clock)
    wanted.subscribed([A])
    wanted.assigned(in_ms(600), [A, B], leader=False)
    wanted.observe(A, 0)
    assert wanted.due_at is None
    wanted.observe(B, 0)
    assert wanted.due_at is not None


def test_zero_means_at_once_for_all_members() -> None:
    clock = Clock()
    wanted = schedule(clock)
    wanted.assigned(0, [], leader=False)
    clock.now += 0.11
    assert wanted.take_due()


def test_a_time_in_the_past_means_now() -> None:
    clock = Clock()
    wanted = schedule(clock)
    wanted.assigned(in_ms(-5), [], leader=True)
    assert wanted.take_due()
