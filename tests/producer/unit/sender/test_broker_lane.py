"""One broker's lane: whether it takes requests, and for how long it has not (KIP-794)."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.producer.sender.broker_lane import BrokerLane, LaneState, ProduceRequest


def connection(**facts: Any) -> Any:
    return SimpleNamespace(**{"writable": True, "throttled_until": 0.0, **facts})


def request(lane: BrokerLane, sent_at: float) -> ProduceRequest:
    return ProduceRequest(1, lambda *_: None, sent_at, lane, connection(), [], 9, {})


def test_stuck_while_something_is_ready_and_cannot_leave() -> None:
    """Java's NodeLatencyStats: ready_ms - drain_ms."""
    lane = BrokerLane(0, 10.0)
    assert lane.unavailable_for == 0.0
    lane.note_readiness(able=True, now=11.0)
    lane.note_readiness(able=False, now=11.2)
    assert lane.unavailable_for == pytest.approx(0.2)
    lane.note_readiness(able=False, now=12.0)
    assert lane.unavailable_for == pytest.approx(1.0)
    lane.note_readiness(able=True, now=12.5)
    assert lane.unavailable_for == 0.0


def test_time_without_anything_ready_does_not_count() -> None:
    lane = BrokerLane(0, 10.0)
    lane.note_readiness(able=False, now=10.1)
    assert lane.unavailable_for == pytest.approx(0.1), "frozen until it is asked again"


@pytest.mark.parametrize(
    ("facts", "in_flight", "free"),
    [
        ({}, 0, True),
        ({}, 4, True),
        ({}, 5, False),
        ({"writable": False}, 0, False),
        ({"throttled_until": 7.1}, 0, False),
        ({"throttled_until": 7.0}, 0, True),
    ],
)
def test_free(facts: dict[str, Any], in_flight: int, free: bool) -> None:
    lane = BrokerLane(3, 0.0)
    lane.in_flight.extend([request(lane, 1.0)] * in_flight)
    assert lane.can_take(connection(**facts), 5, 7.0) is free
    assert repr(lane) == f"<BrokerLane to broker 3 DISCONNECTED in_flight={in_flight}>"


def test_not_free_without_a_connection() -> None:
    assert not BrokerLane(0, 0.0).can_take(None, 5, 0.0)


def test_a_broker_is_overdue_by_its_own_measure_but_not_too_early() -> None:
    lane = BrokerLane(0, 0.0)
    lane.in_flight.append(request(lane, 1.0))
    waited = lane.oldest_wait(1.04, unblocked_since=0.0)
    assert waited == pytest.approx(0.04)
    assert waited <= lane.overdue_after
    assert lane.overdue_after < 0.051
    for _ in range(64):
        lane.record_latency(0.020, 0, 0.0)
    assert lane.overdue_after >= 0.150
    assert lane.overdue_after < 0.170


def test_time_in_which_the_event_loop_stood_still_is_not_the_brokers() -> None:
    lane = BrokerLane(0, 0.0)
    lane.in_flight.append(request(lane, 1.0))
    assert lane.oldest_wait(1.5, unblocked_since=1.48) == pytest.approx(0.02)
    assert BrokerLane(1, 0.0).oldest_wait(9.0, unblocked_since=0.0) == 0.0


def test_a_stall_does_not_grant_as_long_a_stall_the_next_time() -> None:
    lane = BrokerLane(0, 0.0)
    for _ in range(64):
        lane.record_latency(0.002, 0, 0.0)
    for _ in range(5):  # all that was in flight when it began
        lane.record_latency(3.0, 0, 0.0)
    assert lane.overdue_after < 0.21


def test_a_broker_that_has_become_slow_is_found_normal_in_time() -> None:
    lane = BrokerLane(0, 0.0)
    for _ in range(64):
        lane.record_latency(0.001, 0, 0.0)
    for _ in range(40):
        lane.record_latency(0.4, 0, 0.0)
    assert lane.overdue_after >= 0.5


def test_exclusions_are_counted_when_they_begin() -> None:
    lane = BrokerLane(0, 0.0)
    lane.enter(LaneState.DISCONNECTED)
    assert not lane.exclusions, "not connected yet is not left out"
    lane.enter(LaneState.HEALTHY)
    lane.requests_sent = 1
    lane.enter(LaneState.OVERDUE)
    lane.enter(LaneState.OVERDUE)
    lane.enter(LaneState.HEALTHY)
    lane.enter(LaneState.DISCONNECTED)
    assert lane.exclusions == {LaneState.OVERDUE: 1, LaneState.DISCONNECTED: 1}


def test_the_median_latency() -> None:
    lane = BrokerLane(0, 0.0)
    assert lane.median_latency is None
    lane.latencies.extend([0.1, 0.2, 9.0])
    assert lane.median_latency == 0.2


@given(st.lists(st.floats(1e-5, 5.0), max_size=200))
def test_what_is_worked_out_when_asked_is_the_same_however_often_it_is_asked(
    latencies: list[float],
) -> None:
    asked, unasked = BrokerLane(0, 0.0), BrokerLane(0, 0.0)
    kept: deque[float] = deque(maxlen=64)
    p95 = 0.0
    for now, latency in enumerate(latencies, 10):
        kept.append(min(latency, 2 * max(p95, 0.05 / 8)))
        slowest = max(1, len(kept) // 10)
        p95 = sorted(kept)[len(kept) - slowest + slowest // 2]
        asked.record_latency(latency, 0, now)
        unasked.record_latency(latency, 0, now)
        assert asked.p95_latency == p95
        assert asked.overdue_after == max(0.05, 8 * p95)
    assert unasked.p95_latency == p95
    assert unasked.latencies == asked.latencies == kept


@pytest.mark.parametrize(
    ("in_flight", "has_large", "free"),
    [(1, False, 1), (2, False, 0), (2, True, 1), (3, False, -1), (5, False, -1), (5, True, -1)],
)
def test_free_slots(in_flight: int, has_large: bool, free: int) -> None:
    lane = BrokerLane(0, 0.0)
    lane.window.on_round_trip(0.001)
    lane.window.on_response(0.002, 0)
    assert lane.window.size == 2
    lane.in_flight.extend([request(lane, 0.0)] * in_flight)
    assert lane.free_slots(has_large, 1.0) == free


def test_no_slot_is_free_once_the_connection_must_fall_idle_for_a_probe() -> None:
    lane = BrokerLane(0, 0.0)
    lane.in_flight.append(request(lane, 0.0))
    assert lane.free_slots(True, 2.0) == 1
    assert lane.free_slots(True, 2.1) == -1
    fixed = BrokerLane(0, 0.0, fixed_window=True)
    fixed.in_flight.append(request(fixed, 0.0))
    assert fixed.free_slots(False, 2.1) == 4
    fixed.in_flight.extend([request(fixed, 0.0)] * 4)
    assert fixed.free_slots(True, 2.1) == -1, "the limit is max.in.flight"


def test_a_request_that_must_be_alone_waits_for_those_in_flight() -> None:
    lane = BrokerLane(0, 0.0)
    lane.window.must_measure_alone = True
    lane.in_flight.append(request(lane, 0.0))
    assert lane.free_slots(True, 1.0) == -1
