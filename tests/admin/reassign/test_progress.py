"""How far moves are, and why they are stuck."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkaclient.admin.reassign.plan import Move
from kafkaclient.admin.reassign.progress import Measurements, Tracker
from kafkaclient.cli.reassign_report import line
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import OngoingReassignment
from kafkaclient.wire.api import PartitionView

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOVE = Move(frozenset({0, 1}), frozenset({2}))
MOVING = {p: OngoingReassignment(p, (2, 1, 0), (2,), (0,)) for p in (T0, T1)}
VIEWS = {p: PartitionView(p.partition, leader=0, replicas=(2, 1, 0), isr=(0, 1)) for p in (T0, T1)}
START = Measurements(
    at=0.0,
    live=frozenset({0, 1, 2}),
    ongoing=MOVING,
    partitions=VIEWS,
    sizes={0: {T0: 1000, T1: 3000}, 2: {T0: 0, T1: 0}},
    lags={(T0, 2): 10, (T1, 2): 30},
    records={T0: 100, T1: 100},
    rates={2: 100},
)


def later(at: float, first: int, second: int, **changes) -> Measurements:
    sizes = {0: {T0: 1000, T1: 3000}, 2: {T0: first, T1: second}}
    return replace(START, at=at, sizes=sizes, **changes)


def test_bytes_rate_and_time_left() -> None:
    tracker = Tracker()
    first = tracker.take(START)
    assert (first.sum_replica_lag, first.bytes_done, first.bytes_total) == (40, 0, 4000)
    assert first.time_left_s is None
    then = tracker.take(later(10.0, 500, 500, lags={(T0, 2): 5, (T1, 2): 25}))
    (broker,) = then.brokers
    assert (broker.rate, broker.quota, broker.bytes_left, broker.lag) == (100.0, 100, 3000, 30)
    assert then.time_left_s == 30.0
    assert not then.finished


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    tracker = Tracker()
    tracker.take(START)
    for second in range(1, 31):
        done = 1500 if second <= 10 else 1500 + (second - 10) * 10
        progress = tracker.take(later(float(second), 500, done))
    assert progress.rate == pytest.approx(10.0)


def test_what_is_not_under_way_any_more_has_arrived() -> None:
    tracker = Tracker({T0: MOVE, T1: MOVE})
    tracker.take(START)
    half = tracker.take(later(1.0, 900, 100, ongoing={T1: MOVING[T1]}))
    assert [each.done for each in half.partitions] == [True, False]
    assert half.bytes_done == 1100
    end = tracker.take(later(2.0, 0, 0, ongoing={}, partitions={}))
    assert end.finished
    assert (end.bytes_done, end.bytes_total, end.time_left_s) == (4000, 4000, 0.0)


def test_a_cancelled_move_has_not_arrived() -> None:
    tracker = Tracker({T0: MOVE, T1: MOVE})
    tracker.take(later(0.0, 900, 100))
    views = {**VIEWS, T1: VIEWS[T1]._replace(replicas=(0, 1))}
    end = tracker.take(later(1.0, 1000, 0, ongoing={}, partitions=views))
    assert end.finished
    assert (end.done, end.cancelled, end.bytes_done) == (1, 1, 1100)
    assert line(end).startswith("1 of 2 partitions, 1 cancelled, 1,100 B of 4,000 B")


def test_moves_of_others_are_taken_in_as_they_begin() -> None:
    tracker = Tracker()
    assert tracker.take(replace(START, ongoing={T0: MOVING[T0]})).bytes_total == 1000
    assert tracker.take(START).bytes_total == 4000


def stuck(tracker: Tracker, reading: Measurements) -> str | None:
    return tracker.take(reading).partitions[0].stuck


def test_a_broker_that_is_down() -> None:
    assert stuck(Tracker(), replace(START, live=frozenset({0, 1}))) == "broker 2 is down"


def test_no_leader() -> None:
    views = {p: view._replace(leader=-1) for p, view in VIEWS.items()}
    assert "has no leader" in (stuck(Tracker(), replace(START, partitions=views)) or "")


def test_a_broker_that_does_not_answer() -> None:
    reading = replace(START, silent={2: "its disks can't be looked at: error 56 in /d1"})
    assert "broker 2 does not say how far it is: its disks" in (stuck(Tracker(), reading) or "")


def test_a_deleted_topic() -> None:
    assert stuck(Tracker(), replace(START, partitions={})) == "the topic no longer exists"


def test_a_pause_that_the_quota_explains_is_no_stall() -> None:
    """With 100,000 B/s a fetch of 10 MiB is paid off in 105 s."""
    tracker = Tracker()
    tracker.take(replace(START, rates={2: 100_000}))
    assert stuck(tracker, later(400.0, 0, 0, rates={2: 100_000})) is None
    assert "has received nothing" in (stuck(tracker, later(500.0, 0, 0, rates={2: 100_000})) or "")


def test_a_quota_of_nothing() -> None:
    tracker = Tracker()
    tracker.take(replace(START, rates={2: 0}))
    assert stuck(tracker, later(29.0, 0, 0, rates={2: 0})) is None
    told = stuck(tracker, later(31.0, 0, 0, rates={2: 0}))
    assert told == "broker 2 has received nothing for 31 s: its quota is 0, set a larger quota"


def test_as_much_written_as_may_move() -> None:
    """KIP-73: the administrator must simply increase the throttle value a little."""
    tracker = Tracker()
    quota = {2: 10_000_000}
    tracker.take(replace(START, rates=quota))
    grown = {0: {T0: 500_000_000, T1: 3000}, 2: {T0: 0, T1: 0}}
    told = stuck(tracker, replace(START, at=40.0, sizes=grown, rates=quota))
    assert "12.5 MB/s to the partitions that move there, and its quota is 10.0 MB/s" in (told or "")


def test_without_quota_there_is_only_the_log_to_look_at() -> None:
    tracker = Tracker()
    tracker.take(replace(START, rates={}))
    told = stuck(tracker, later(40.0, 0, 0, rates={}))
    assert told == "broker 2 has received nothing for 40 s: check the logs of the brokers"


def test_what_gets_on_is_not_stuck() -> None:
    tracker = Tracker()
    for second in range(0, 200, 20):
        progress = tracker.take(later(float(second), 0, second, rates={}))
    assert progress.stuck == ()
