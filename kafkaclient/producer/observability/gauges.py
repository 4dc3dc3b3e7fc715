"""Metrics that Java does not have, per broker, topic and partition: the choice of partitions, and
the load it is based on. ``ProducerMetrics.snapshot`` (``kafkaclient/metrics/producer.py``) adds
them to the recorded metrics.
"""

from __future__ import annotations

from collections import Counter
from math import nan
from typing import TYPE_CHECKING

from kafkaclient.producer.observability.load import partition_skew
from kafkaclient.producer.sender.broker_exclusion import LaneState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.metrics import ProducerMetrics
    from kafkaclient.metrics.producer import Gauges
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.sender.broker_lane import BrokerLane

_MS_PER_S = 1000.0
_REASONS = [(s, s.exclusion_reason) for s in LaneState if s.exclusion_reason is not None]


def bind_load_gauges(
    metrics: ProducerMetrics, accumulator: RecordAccumulator, lanes: Iterable[BrokerLane]
) -> None:
    """Have each snapshot of the metrics read the state of the accumulator and the lanes."""

    def of_nodes() -> dict[int, Gauges]:
        in_flight: Counter[int] = Counter()  # of both lanes; all other gauges are the primary's
        for lane in lanes:
            in_flight[lane.node_id] += len(lane.in_flight)
        return {
            lane.node_id: {**_lane_gauges(lane), "requests-in-flight": in_flight[lane.node_id]}
            for lane in lanes
            if lane.primary is lane
        }

    def of_topics() -> dict[str, Gauges]:
        topics = accumulator.topics
        return {name: {"partition-skew": partition_skew(topics[name])} for name in topics}

    def of_partitions() -> dict[str, dict[int, Gauges]]:
        return {
            name: {
                partition: {
                    "batch-bound-total": queue.batches_bound,
                    "byte-bound-total": queue.bytes_bound,
                }
                for partition, queue in topic.queues.items()
            }
            for name, topic in accumulator.topics.items()
        }

    metrics.bind_gauges(of_nodes, of_topics, of_partitions, lambda: exclusions(lanes))


def exclusions(lanes: Iterable[BrokerLane]) -> dict[int, dict[str, int]]:
    """By node id and reason: how often the broker was excluded for it."""
    return {
        lane.node_id: {reason: lane.exclusions[state] for state, reason in _REASONS}
        for lane in lanes
        if lane.primary is lane
    }


def _lane_gauges(lane: BrokerLane) -> Gauges:
    window = lane.window
    return {
        "in-flight-window": window.size,
        "round-trip-time-ms": _ms(window.round_trip),
        "service-time-ms": _ms(window.service),
        "produce-latency-median-ms": _ms(lane.median_latency),
    }


def _ms(seconds: float | None) -> float:
    return nan if seconds is None else seconds * _MS_PER_S
