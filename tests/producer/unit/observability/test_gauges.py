"""Metrics that Java has not: what went where by choice, and the state of each broker's lane."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.errors import KafkaError
from kafkaclient.metrics import ProducerMetrics
from kafkaclient.producer.batches.partition_queue import BufferShares
from kafkaclient.producer.observability.load import LiveGauges, LiveLoad, partition_skew
from kafkaclient.producer.sender.broker_lane import BrokerLane, LaneState
from kafkaclient.producer.settings import SenderSettings

if TYPE_CHECKING:
    from tests.producer.support import Bench


def test_a_lane_is_told() -> None:
    lane = BrokerLane(3, 0.0, 5)
    lane.window.on_round_trip(0.010)
    lane.window.on_response(0.015, 0)
    lane.latencies.extend([0.015, 0.025, 0.030])
    lane.in_flight.append(None)  # type: ignore[arg-type]  # some request
    lane.enter(LaneState.HEALTHY)
    lane.enter(LaneState.THROTTLED)
    metrics = ProducerMetrics(lambda: 0.0)
    metrics.gauges = gauges_of(lane)
    snapshot = metrics.snapshot()
    reasons = ("overdue", "slow", "availability", "throttled", "connection")
    assert snapshot.exclusions == {3: {name: int(name == "throttled") for name in reasons}}
    assert snapshot.brokers[3] == pytest.approx(
        {
            "buffer-used-bytes": 2,
            "in-flight-window": 3,
            "requests-in-flight": 1,
            "round-trip-time-ms": 10,
            "service-time-ms": 5,
            "produce-latency-median-ms": 25,
            "exclusion-overdue-total": 0,
            "exclusion-slow-total": 0,
            "exclusion-availability-total": 0,
            "exclusion-throttled-total": 1,
            "exclusion-connection-total": 0,
        }
    )


def test_what_was_not_measured_is_not_a_number() -> None:
    metrics = ProducerMetrics(lambda: 0.0)
    metrics.gauges = gauges_of(BrokerLane(0, 0.0, 4, fixed_window=True))
    told = metrics.snapshot().brokers[0]
    assert told["in-flight-window"] == 4
    for name in ("round-trip-time-ms", "service-time-ms", "produce-latency-median-ms"):
        assert math.isnan(told[name])


def gauges_of(lane: BrokerLane) -> Any:
    pool = SimpleNamespace(total=9, available=7, shares=BufferShares())
    pool.shares.of(3).held = 2
    accumulator = SimpleNamespace(topics={}, buffer_pool=pool)
    callers, metadata = SimpleNamespace(callers=2), SimpleNamespace(refreshed_at=1.0)
    return LiveGauges(accumulator, [lane], callers, metadata, lambda: 4.0)


def test_the_producer_as_a_whole() -> None:
    metrics = ProducerMetrics(lambda: 0.0)
    metrics.gauges = gauges_of(BrokerLane(0, 0.0))
    told = metrics.snapshot().producer
    assert list(told) == sorted(told)
    assert {name: told[name] for name in metrics.gauges.of_producer()} == {
        "buffer-total-bytes": 9,
        "buffer-available-bytes": 7,
        "waiting-threads": 2,
        "requests-in-flight": 0,
        "metadata-age": 3.0,
    }


class _NoLanes(list[BrokerLane]):
    def get(self, _node_id: int) -> BrokerLane | None:
        return None


# --- partitions ----------------------------------------------------------------------------------


def test_skew(bench: type[Bench]) -> None:
    it = bench((0, 0, 1, -1))
    assert math.isnan(partition_skew(it.topic))
    it.put_batches(0, 3)
    assert math.isnan(partition_skew(it.topic)), "queued is not bound"
    for _ in range(3):
        it.drain(0)
    assert partition_skew(it.topic) == 3.0, "three partitions have a leader"
    it.put_batches(1)
    it.put_batches(2)
    it.drain(0)
    it.drain(1)
    assert partition_skew(it.topic) == pytest.approx(3 / (5 / 3))
    it.topic.view = None
    assert math.isnan(partition_skew(it.topic)), "the topic was forgotten"


FATES = st.sampled_from(["answered", "retried", "unanswered"])
MOVES = st.lists(
    st.tuples(st.just("put"), st.none() | st.integers(0, 2)) | st.tuples(st.integers(0, 1), FATES),
    max_size=60,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # bench is only a class
@given(MOVES)
def test_bound_counts_each_batch_once(bench: type[Bench], moves: list[tuple[Any, Any]]) -> None:
    """Whatever is sent again: bound is what was sent for the first time, in every view of it."""
    it = bench((0, 1, 0), batch_size=200)
    expected: dict[int, tuple[int, int]] = {}
    for where, what in moves:
        if where == "put":
            it.put(what, bytes(60))
            continue
        for batch in it.drain(where):
            batches, nbytes = expected.get(batch.queue.partition, (0, 0))
            if batch.attempts == 1:
                expected[batch.queue.partition] = (batches + 1, nbytes + batch.size)
            if what == "answered":
                it.incomplete.complete(batch, 0, -1, 0.0)
            elif what == "retried":
                it.incomplete.retry(batch, KafkaError("again"), 0.0, 0.0)
    lanes, settings = _NoLanes(), SenderSettings(client_id="test")
    metadata: Any = SimpleNamespace(view=SimpleNamespace(brokers=[0, 1]))
    live = LiveLoad(it.accumulator, lanes, settings, metadata, lambda: 0.0)
    load = live.snapshot()
    bound = {p.partition: (p.batches_bound, p.bytes_bound) for p in load.partitions}
    assert {place: counts for place, counts in bound.items() if counts != (0, 0)} == expected
    if expected:
        sizes = [expected.get(partition, (0, 0))[1] for partition in range(3)]
        assert load.skew["test"] == pytest.approx(max(sizes) / (sum(sizes) / 3))
        assert 1.0 <= load.skew["test"] <= 3.0


def test_a_switch_is_a_batch_that_goes_elsewhere_than_the_one_before(bench: type[Bench]) -> None:
    it = bench((0, 1, 0), batch_size=200)
    for _ in range(30):
        it.put(None, bytes(60))
        it.put(2, bytes(60))  # somebody's choice, but not the partitioner's
    assert it.topic.strategy.partitioner.switches > 3, "draws 0, 1, 2, ... never repeat a partition"
    # The partition of the caller's choice has a batch already when the partitioner comes to it.
    switches = it.metrics.snapshot().topics["test"]["partition-switch-total"]
    assert 3 < switches <= it.topic.strategy.partitioner.switches
