"""By which of its leader's lanes a partition's batches go, and which partitions are better left.

With acks=all a broker answers for a partition once all its in-sync replicas have the records. While
one of these is on a dead broker that was not yet found out (9 s by default) the answer waits, and
as a broker answers a connection in order, so does everything behind it, also for partitions that
lack nothing. Therefore health is a partition's, not a broker's: those that need a dead broker go by
a second lane, at the side, and get no records that could go elsewhere. Nor do those led by it.

A lane's number is its broker's, or :func:`side_of` it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.producer.lane_id import side_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer

__all__ = ["Detours"]


class Detours:
    """Keeps the topics' ``detours`` and ``avoided`` by which brokers are dead.

    ``adaptive``: records without key go where they need not wait.
    """

    def __init__(
        self, topics: Mapping[str, TopicBuffer], lines: ReadyQueues, *, adaptive: bool
    ) -> None:
        self._topics = topics
        self._ready_queues = lines
        self._adaptive = adaptive
        self._dead: frozenset[int] = frozenset()
        self.side_lanes: set[int] = set()
        """The second lanes that any partition is to go by."""
        self._detoured = False

    def set_dead_brokers(self, dead: frozenset[int], now: float) -> None:
        """These brokers, and no others, are dead as far as is known."""
        if dead != self._dead:
            self._dead = dead
            self.recompute(now)

    def recompute(self, now: float) -> None:
        """Find the routes anew; to be called when leaders or in-sync replicas have changed."""
        if not self._dead and not self._detoured:
            return
        partitions = {
            topic: () if topic.view is None else topic.view.partitions
            for topic in self._topics.values()
        }
        # Where there is nothing to be kept from waiting, one lane does.
        self.side_lanes.clear()
        clean = {p.leader for known in partitions.values() for p in known if self._is_clean(p)}
        for topic, known in partitions.items():
            needy = [p for p in known if self._is_needy(p)]
            others = any(self._is_clean(p) for p in known)
            topic.side_lane_of = {
                p.partition: side_of(p.leader) for p in needy if p.leader in clean
            }
            self.side_lanes.update(topic.side_lane_of.values())
            avoided = known if self._adaptive and others else ()
            topic.avoided = frozenset([p.partition for p in avoided if not self._is_clean(p)])
            for partition, queue in topic.queues.items():
                route = topic.side_lane_of.get(partition, queue.leader)
                if queue.target_lane != route:
                    queue.target_lane = route
                    self._ready_queues.schedule(queue, now)
            if topic.view is not None:
                topic.strategy.update_metadata(topic.view)
        self._detoured = bool(self._dead)

    def _is_needy(self, partition: PartitionView) -> bool:
        """Whether its leader answers, but only when a dead broker does or is given up."""
        return self._has_leader(partition) and not self._is_clean(partition)

    def _is_clean(self, partition: PartitionView) -> bool:
        return self._has_leader(partition) and self._dead.isdisjoint(partition.isr)

    def _has_leader(self, partition: PartitionView) -> bool:
        return partition.leader >= 0 and partition.leader not in self._dead
