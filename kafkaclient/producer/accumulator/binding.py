"""Which partition an unbound batch gets, and which lane of its leader a partition uses.

Late binding chooses the partition when a broker can take a batch; this module applies the choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.producer.batches.record import Record
from kafkaclient.producer.settings import side_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.metrics.producer import ProducerMetrics
    from kafkaclient.producer.accumulator.partition_strategies import BrokerConditions
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.topic_buffer import BatchObserver, TopicBuffer


# --- Which lane of its leader each partition uses -------------------------------------------------
# With acks=all a broker acknowledges a batch once all in-sync replicas of the partition have it.
# A dead replica stays in sync until the cluster notices (9 s by default), and the acknowledgement
# waits. A broker answers a connection in order, so every later batch on the connection waits as
# well, also for partitions without a dead replica. Therefore the partitions that wait for a dead
# replica use the side lane of their leader, a second connection, and get no records without key.
# The partitions led by a dead broker get none either.
#
# The side lane of a broker has the number ``side_of`` gives.


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


# --- Binding: unbound batches get a partition, or give it back before they are sent ---------------

_UNKEYED = Record(0, None, None, (), None, 0)  # for a strategy that chooses a partition


class BatchBinding:
    """Binds batches, and has ``metrics`` count when a topic's batch goes to another partition than
    the batch before it."""

    def __init__(
        self,
        ready_queues: ReadyQueues,
        conditions: BrokerConditions,
        metrics: ProducerMetrics,
        observer: BatchObserver | None = None,
    ) -> None:
        self._ready_queues = ready_queues
        self._conditions = conditions
        self._metrics = metrics
        self._observer = observer

    def bind(
        self,
        batch: ProducerBatch,
        queue: PartitionQueue,
        bound_by: str,
        now: float,
        rebindable: bool = False,
    ) -> None:
        """The batch, taken out of its topic's unbound queue, gets the partition of ``queue``."""
        if self._observer is not None:
            self._observer.on_bound(batch, queue, bound_by, now)
        batch.bind(queue, rebindable=rebindable)
        if queue.topic.switch_to(queue.partition):
            self._metrics.partition_switched(queue.topic.name)

    def opened(self, batch: ProducerBatch, queue: PartitionQueue, now: float, chosen: bool) -> None:
        """A batch was opened in its partition; ``chosen``: not by key or caller."""
        if chosen and queue.topic.switch_to(queue.partition):
            self._metrics.partition_switched(queue.topic.name)
        if self._observer is not None:
            self._observer.on_bound(batch, queue, "floor" if batch.rebindable else "append", now)

    def reserve(self, batch: ProducerBatch, queue: PartitionQueue, now: float) -> None:
        """Bind an open batch to a partition below its minimum share, where it lingers."""
        self.bind(batch, queue, "floor", now, rebindable=True)
        strategy = queue.topic.strategy
        strategy.on_reserved(queue, batch)
        batch.linger_until(now + strategy.extra_linger(queue))
        queue.enqueue(batch)
        self._ready_queues.schedule(queue, now)

    def end_reservation(self, queue: PartitionQueue, now: float) -> None:
        """A record with this partition came: a batch reserved for the partition lingers no more."""
        if queue not in self._conditions.reserved_queues or not queue.batches:
            return
        batch = queue.batches[-1]
        if batch.rebindable and not batch.closed:
            batch.close()
            queue.topic.strategy.on_batch_closed(queue)
            self._ready_queues.schedule(queue, now)

    def unbind_unsendable(self, now: float) -> None:
        """Take the partition away from batches whose partition cannot be written to, if every
        partition would do."""
        leaderless = self._ready_queues.leaderless
        if leaderless:
            for queue in [queue for queue in leaderless if queue.is_deleted]:
                self._rescue_from_deleted_partition(queue, now)
        reserved, brokers = self._conditions.reserved_queues, self._conditions.brokers
        for queue in list(reserved) if reserved else ():
            retrying = bool(queue.batches) and bool(queue.batches[0].attempts)
            avoided = queue.partition in queue.topic.avoided
            if retrying or avoided or brokers is None or not brokers.keeps_reserved(queue.lane):
                self._unbind_reserved(queue, now)

    def _unbind_reserved(self, queue: PartitionQueue, now: float) -> None:
        self._unbind([batch for batch in queue.batches if batch.rebindable], queue, now)
        queue.topic.strategy.on_batch_moved(queue)

    def _rescue_from_deleted_partition(self, queue: PartitionQueue, now: float) -> None:
        """The topic was created again with fewer partitions. Records with a key, or with this
        partition from the caller, wait for the partition to come back."""
        # Without ids (before Kafka 2.8) an answer that is merely out of date looks the same.
        topic = queue.topic
        certain, strategy, view = topic.topic_id is not None, topic.strategy, topic.view
        batches = [b for b in queue.batches if b.any_partition and (certain or not b.maybe_written)]
        if not batches or (strategy.may_move and view is None):
            return
        self._unbind(batches, queue, now)
        if strategy.may_move and view is not None:
            self._bind_all_unbound(topic, strategy.choose_queue(_UNKEYED, view), now)

    def _unbind(self, batches: list[ProducerBatch], queue: PartitionQueue, now: float) -> None:
        if batches:
            queue.give_back_unbound(batches)
            self._ready_queues.schedule(queue.topic.unbound, now)
            self._ready_queues.schedule(queue, now)

    def collapse_to_single_partition(self, topic: TopicBuffer, now: float) -> None:
        """The topic was created again with one partition, which keeps the order of its records:
        the unbound batches come before all batches that are sent from now on."""
        for queue in [q for q in self._conditions.reserved_queues if q.topic is topic]:
            self._unbind_reserved(queue, now)
        if topic.unbound.batches:
            self._bind_all_unbound(topic, topic.queue(0), now)

    def _bind_all_unbound(self, topic: TopicBuffer, queue: PartitionQueue, now: float) -> None:
        for batch in topic.unbound.batches:
            batch.close()
            self.bind(batch, queue, "append", now)
        queue.take_all_unbound()
        self._ready_queues.schedule(topic.unbound, now)
        self._ready_queues.schedule(queue, now)
