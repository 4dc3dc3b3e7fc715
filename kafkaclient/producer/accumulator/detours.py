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
    from collections.abc import Collection, Mapping

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
        self._clean: dict[TopicBuffer, frozenset[int]] = {}
        """By topic: the leaders of its clean partitions, which wait for no dead broker."""
        self._clean_leaders: frozenset[int] = frozenset()
        """Of all topics. A broker that leads no clean partition needs no side lane."""
        self.side_lanes: set[int] = set()
        """The side lanes that any partition is to use."""
        self._detoured = False

    def set_dead_brokers(self, dead: frozenset[int], now: float) -> None:
        """These brokers, and no others, are presumed dead."""
        if dead != self._dead:
            self._dead = dead
            self._clean.clear()
            self.update((), now)

    def update(self, changed: Collection[str], now: float) -> None:
        """Use the metadata of these topics, whose leaders or in-sync replicas have changed."""
        if not self._dead and not self._detoured:
            return
        topics, before = self._topics.values(), self._clean
        clean = {t: before[t] for t in topics if t in before and t.name not in changed}
        stale = [topic for topic in topics if topic not in clean]
        for topic in stale:
            clean[topic] = frozenset([p.leader for p in _partitions(topic) if self._is_clean(p)])
        self._clean = clean
        leaders = frozenset[int]().union(*clean.values())
        if leaders != self._clean_leaders:
            self._clean_leaders = leaders
            stale = list(topics)
        for topic in stale:
            self._update_topic(topic, now)
        self.side_lanes.clear()
        self.side_lanes.update(*[topic.side_lane_of.values() for topic in topics])
        self._detoured = bool(self._dead)

    def _update_topic(self, topic: TopicBuffer, now: float) -> None:
        partitions = _partitions(topic)
        unclean = [p for p in partitions if not self._is_clean(p)]
        if not unclean and not topic.side_lane_of and not topic.avoided:
            return
        side_lane_of = {
            p.partition: side_of(p.leader)
            for p in unclean
            if p.leader in self._clean_leaders  # it is alive
        }
        avoid = bool(self._dead) and self._adaptive and len(unclean) < len(partitions)
        avoided = frozenset([p.partition for p in unclean]) if avoid else frozenset[int]()
        topic.set_detours(side_lane_of, avoided)
        for partition, queue in topic.queues.items():
            lane = side_lane_of.get(partition, queue.leader)
            if queue.target_lane != lane:
                queue.set_target_lane(lane)
                self._ready_queues.schedule(queue, now)
        if topic.view is not None:
            topic.strategy.update_metadata(topic.view)

    def _is_clean(self, partition: PartitionView) -> bool:
        """Whether the partition has a leader, and waits for no dead broker."""
        _, leader, _, _, isr = partition
        dead = self._dead
        return leader >= 0 and leader not in dead and dead.isdisjoint(isr)


def _partitions(topic: TopicBuffer) -> tuple[PartitionView, ...]:
    return () if topic.view is None else topic.view.partitions
