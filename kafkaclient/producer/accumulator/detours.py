"""Which lane of its leader each partition uses, and which partitions unkeyed records avoid.

With acks=all a broker acknowledges a batch once all in-sync replicas of the partition have it. A
dead replica stays in sync until the cluster notices (9 s by default), and the acknowledgement
waits. A broker answers a connection in order, so every later batch on the connection waits as well,
also for partitions without a dead replica. Therefore the partitions that wait for a dead replica
use the side lane of their leader, a second connection, and get no records without key. The
partitions led by a dead broker get none either.

The side lane of a broker has the number :func:`side_of` gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.producer.lane_id import side_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer


class Detours:
    """Keeps the side lanes and the avoided partitions of all topics.

    ``adaptive``: records without key avoid partitions that would make them wait.
    """

    def __init__(
        self, topics: Mapping[str, TopicBuffer], ready_queues: ReadyQueues, *, adaptive: bool
    ) -> None:
        self._topics = topics
        self._ready_queues = ready_queues
        self._adaptive = adaptive
        self._dead: frozenset[int] = frozenset()
        self.side_lanes: set[int] = set()
        """The side lanes that any partition is to use."""
        self._detoured = False

    def set_dead_brokers(self, dead: frozenset[int], now: float) -> None:
        """These brokers, and no others, are presumed dead."""
        if dead != self._dead:
            self._dead = dead
            self.recompute(now)

    def recompute(self, now: float) -> None:
        """Update all topics. To be called when leaders or in-sync replicas have changed."""
        if not self._dead and not self._detoured:
            return
        partitions = {
            topic: () if topic.view is None else topic.view.partitions
            for topic in self._topics.values()
        }
        # A broker that leads no other partition needs no side lane.
        self.side_lanes.clear()
        clean = {p.leader for known in partitions.values() for p in known if self._is_clean(p)}
        for topic, known in partitions.items():
            needy = [p for p in known if self._is_needy(p)]
            others = any(self._is_clean(p) for p in known)
            side_lane_of = {p.partition: side_of(p.leader) for p in needy if p.leader in clean}
            self.side_lanes.update(side_lane_of.values())
            avoided = known if self._dead and self._adaptive and others else ()
            topic.set_detours(
                side_lane_of, frozenset([p.partition for p in avoided if not self._is_clean(p)])
            )
            for partition, queue in topic.queues.items():
                lane = side_lane_of.get(partition, queue.leader)
                if queue.target_lane != lane:
                    queue.set_target_lane(lane)
                    self._ready_queues.schedule(queue, now)
            if topic.view is not None:
                topic.strategy.update_metadata(topic.view)
        self._detoured = bool(self._dead)

    def _is_needy(self, partition: PartitionView) -> bool:
        """Whether the leader is alive and waits for a dead replica."""
        return self._has_leader(partition) and not self._is_clean(partition)

    def _is_clean(self, partition: PartitionView) -> bool:
        return self._has_leader(partition) and self._dead.isdisjoint(partition.isr)

    def _has_leader(self, partition: PartitionView) -> bool:
        return partition.leader >= 0 and partition.leader not in self._dead
