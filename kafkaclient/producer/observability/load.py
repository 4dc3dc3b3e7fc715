"""What is queued and in flight now, and the gauges that Java does not have.

``partitioning/partitioners.py`` documents the values and methods.
"""

from __future__ import annotations

from collections import Counter
from math import nan
from typing import TYPE_CHECKING, Protocol

from kafkaclient.producer.partitioning.partitioners import BrokerLoad, LoadSnapshot, PartitionLoad
from kafkaclient.producer.sender.broker_lane import LaneState

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.metrics.producer import Gauges
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.sender.broker_lane import BrokerLane
    from kafkaclient.producer.sender.broker_lanes import BrokerLanes
    from kafkaclient.producer.settings import SenderSettings
    from kafkaclient.types import TopicPartition


# --- What is queued and in flight in a producer now, for custom partitioners ----------------------


class LiveLoad:
    """Implements :class:`~kafkaclient.producer.partitioning.partitioners.LoadView`. A snapshot
    includes the brokers without traffic."""

    __slots__ = ("_accumulator", "_clock", "_lanes", "_metadata", "_settings")

    def __init__(
        self,
        accumulator: RecordAccumulator,
        lanes: BrokerLanes,
        settings: SenderSettings,
        metadata: Metadata,
        clock: Callable[[], float],
    ) -> None:
        self._accumulator = accumulator
        self._lanes = lanes
        self._settings = settings
        self._metadata = metadata
        self._clock = clock

    def queued_batches(self, topic: str, partition: int) -> int:
        queue = self._queue(topic, partition)
        return len(queue.batches) if queue is not None else 0

    def queued_bytes(self, topic: str, partition: int) -> int:
        queue = self._queue(topic, partition)
        return queue.queued_bytes if queue is not None else 0

    def in_flight_batches(self, topic: str, partition: int) -> int:
        queue = self._queue(topic, partition)
        return queue.in_flight if queue is not None else 0

    def in_flight_requests(self, node_id: int) -> int:
        return sum(len(lane.in_flight) for lane in self._lanes if lane.node_id == node_id)

    def oldest_in_flight_s(self, node_id: int) -> float:
        lanes = [lane for lane in self._lanes if lane.node_id == node_id and lane.in_flight]
        since = min([lane.in_flight[0].sent_at for lane in lanes], default=None)
        return 0.0 if since is None else self._clock() - since

    def recent_latency_s(self, node_id: int) -> float | None:
        lane = self._lanes.get(node_id)
        if lane is None or not lane.latencies:
            return None
        return sum(lane.latencies) / len(lane.latencies)

    def window(self, node_id: int) -> int:
        lane = self._lanes.get(node_id)
        if lane is None or not self._settings.adaptive_window:
            return self._settings.max_in_flight
        return lane.window.size

    def snapshot(self, *, partitions: bool = True) -> LoadSnapshot:
        topics, now = self._accumulator.topics, self._clock()
        nodes = {*(lane.node_id for lane in self._lanes), *self._metadata.view.brokers}
        queued = dict.fromkeys(nodes, (0, 0))
        loads = []
        for topic in topics.values():
            for queue in topic.queues.values():
                waiting = len(queue.batches)
                if waiting and queue.leader in queued:
                    batches, size = queued[queue.leader]
                    queued[queue.leader] = (batches + waiting, size + queue.queued_bytes)
                if partitions:
                    loads.append(_partition_load(queue))
        return LoadSnapshot(
            tuple(
                _broker_load(node_id, batches, size, self._lanes.get(node_id), now)
                for node_id, (batches, size) in sorted(queued.items())
            ),
            tuple(loads),
            {name: partition_skew(topic) for name, topic in topics.items()},
            {n: t.unbound.queued_bytes for n, t in topics.items() if t.unbound.batches},
        )

    def _queue(self, topic: str, partition: int) -> PartitionQueue | None:
        buffer = self._accumulator.topics.get(topic)
        return None if buffer is None else buffer.queues.get(partition)


def _partition_load(queue: PartitionQueue) -> PartitionLoad:
    return PartitionLoad(
        queue.tp.topic,
        queue.tp.partition,
        queue.leader,
        len(queue.batches),
        queue.queued_bytes,
        queue.in_flight,
        queue.bytes_sent,
        queue.records_sent,
        queue.batches_bound,
        queue.bytes_bound,
    )


def partition_skew(topic: TopicBuffer) -> float:
    """The most bytes bound to one partition, divided by the mean over the partitions with a leader.

    1.0 is an even spread; all bytes on one partition give the number of partitions. NaN if no bytes
    were bound.
    """
    view = topic.view
    if view is None:
        return nan
    led = view.partitions
    given = [
        queue.bytes_bound
        for partition, queue in topic.queues.items()
        if partition < len(led) and led[partition].leader >= 0
    ]
    total = sum(given)
    return max(given) * len(view.available) / total if total else nan


def _broker_load(
    node_id: int, batches: int, size: int, lane: BrokerLane | None, now: float
) -> BrokerLoad:
    if lane is None:
        return BrokerLoad(node_id, batches, size, 0, 0.0, 0, 0)
    return BrokerLoad(
        node_id,
        batches,
        size,
        len(lane.in_flight),
        now - lane.in_flight[0].sent_at if lane.in_flight else 0.0,
        lane.bytes_sent,
        lane.requests_sent,
        lane.window.size,
        lane.state.exclusion_reason,
        lane.exclusions.total(),
        lane.median_latency,
    )


# --- Metrics that Java does not have, per broker, topic and partition -----------------------------

_MS_PER_S = 1000.0
_REASONS = [(s, s.exclusion_reason) for s in LaneState if s.exclusion_reason is not None]


class WithCallers(Protocol):
    """The pending sends, as the gauges see them."""

    @property
    def callers(self) -> int:
        """How many callers wait for buffer space or metadata."""


class LiveGauges:
    """Implements :class:`~kafkaclient.metrics.producer.GaugeSource`."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        lanes: BrokerLanes,
        pending_sends: WithCallers,
        metadata: Metadata,
        clock: Callable[[], float],
    ) -> None:
        self._accumulator = accumulator
        self._lanes = lanes
        self._pending_sends = pending_sends
        self._metadata = metadata
        self._clock = clock

    def of_producer(self) -> Gauges:
        buffer_pool = self._accumulator.buffer_pool
        return {
            "buffer-total-bytes": buffer_pool.total,
            "buffer-available-bytes": buffer_pool.available,
            "waiting-threads": self._pending_sends.callers,
            "requests-in-flight": sum(len(lane.in_flight) for lane in self._lanes),
            "metadata-age": self._clock() - self._metadata.refreshed_at,
        }

    def of_brokers(self) -> dict[int, Gauges]:
        in_flight: Counter[int] = Counter()  # of both lanes; all other gauges are the primary's
        for lane in self._lanes:
            in_flight[lane.node_id] += len(lane.in_flight)
        shares = self._accumulator.buffer_pool.shares
        return {
            lane.node_id: {
                **_lane_gauges(lane),
                "requests-in-flight": in_flight[lane.node_id],
                "buffer-used-bytes": shares.held_for(lane.node_id),
            }
            for lane in self._lanes
            if lane.primary is lane
        }

    def of_topics(self) -> dict[str, Gauges]:
        topics = self._accumulator.topics
        return {name: {"partition-skew": partition_skew(topics[name])} for name in topics}

    def of_partitions(self) -> dict[TopicPartition, Gauges]:
        return {
            queue.tp: {
                "batch-bound-total": queue.batches_bound,
                "byte-bound-total": queue.bytes_bound,
            }
            for topic in self._accumulator.topics.values()
            for queue in topic.queues.values()
        }

    def exclusions(self) -> dict[int, dict[str, int]]:
        return {
            lane.node_id: {reason: lane.exclusions[state] for state, reason in _REASONS}
            for lane in self._lanes
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
