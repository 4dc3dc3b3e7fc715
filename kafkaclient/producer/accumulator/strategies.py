"""The built-in partition strategies: late binding, round-robin and KIP-794."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkaclient.producer.batches.strategy import PartitionStrategy
from kafkaclient.producer.partitioning.kip794 import BuiltInPartitioner, load_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.partitioning.kip794 import Random31
    from kafkaclient.producer.partitioning.minimum_share import MinimumShare
    from kafkaclient.producer.partitioning.rack import Rack

__all__ = [
    "BrokerConditions",
    "Brokers",
    "Kip794",
    "LateBinding",
    "PartitionStrategy",
    "RoundRobinBinding",
]


class Brokers(Protocol):
    """What is asked about brokers when a record comes."""

    def has_capacity(self, lane: int) -> bool:
        """Whether the lane's broker is in order and could take another request."""

    def is_healthy(self, lane: int) -> bool:
        """Whether the broker would take requests if it had not its share of them already."""

    def may_be_waited_for(self, lane: int) -> bool:
        """Whether records may wait for the broker in order that it gets its share."""

    def p95_latency(self, lane: int) -> float:
        """What a Produce request to the broker usually takes at the most, in seconds."""


class BrokerConditions:
    """What the sender has found out, for the topics' choices."""

    __slots__ = (
        "accepts_new_batch",
        "brokers",
        "kip794_unavailable",
        "rack",
        "reserved_queues",
        "sender_passes",
    )

    def __init__(self, rack: Rack, accepts_new_batch: Callable[[PartitionQueue], bool]) -> None:
        self.rack = rack
        """The brokers that are near, and preferred for it."""
        self.sender_passes = 0
        """How often the sender has gone over everything."""
        self.kip794_unavailable: Collection[int] = ()
        """The brokers that KIP-794 leaves out, as of the last pass."""
        self.brokers: Brokers | None = None
        """Assigned by the sender, whose lanes need the accumulator first."""
        self.accepts_new_batch = accepts_new_batch
        """Whether a batch that was never sent could leave from the queue at once."""
        self.reserved_queues: dict[PartitionQueue, None] = {}
        """The queues that hold a batch set aside for their partition's share."""


class LateBinding(PartitionStrategy):
    """Late binding: the sender chooses when a broker can take the batch.

    But for the records set aside for a partition below the share floor while its broker is free:
    their batch waits for company until the floor is reached, and moves when the broker falls out
    of order.
    """

    __slots__ = ("_conditions", "_minimum_share", "_reserved", "_searched_in_pass", "_topic")

    def __init__(
        self, topic: TopicBuffer, floor: MinimumShare, conditions: BrokerConditions
    ) -> None:
        self._topic = topic
        self._minimum_share = floor
        self._conditions = conditions
        self._reserved: PartitionQueue | None = None
        """The queue that records are set aside in."""
        self._searched_in_pass = 0
        """In which pass of the sender nobody was found to set records aside for."""

    def choose_queue(self, record: Record, view: TopicView) -> PartitionQueue:
        if view.partition_count == 1:
            return self._topic.queue(0)  # it keeps the order in which its records were sent
        if self._reserved is not None and not self._reserved.batches:
            self._reserved = None  # its batch has expired
        queue = self._reserved
        if queue is None and self._searched_in_pass != self._conditions.sender_passes:
            queue = self._reserved = self._find()
        return queue or self._topic.unbound

    def _find(self) -> PartitionQueue | None:
        brokers = self._conditions.brokers
        # Not past those that wait already: what is set aside would overtake them.
        idle = brokers is not None and not self._topic.unbound.batches
        partition = (
            self._minimum_share.most_underserved(brokers.has_capacity) if brokers and idle else None
        )
        queue = None if partition is None else self._topic.queue(partition)
        if queue is None or queue.batches or not self._conditions.accepts_new_batch(queue):
            self._searched_in_pass = self._conditions.sender_passes
            return None
        self._conditions.reserved_queues[queue] = None
        return queue

    def queue_for_new_batch(
        self, queue: PartitionQueue, record: Record, view: TopicView
    ) -> PartitionQueue:
        if queue.batches and queue is self._reserved:
            self._reserved = None  # one batch at a time, so that nobody waits twice
            return self._topic.unbound
        return queue

    def on_append(
        self, queue: PartitionQueue, batch: ProducerBatch, nbytes: int, view: TopicView
    ) -> None:
        self._minimum_share.add(queue.partition, nbytes)
        batch.credit(nbytes)
        if not self._minimum_share.is_below(queue.partition) or batch.full:
            batch.close()
            self._reserved = None

    def is_sticky(self, queue: PartitionQueue) -> bool:
        return queue is not self._reserved

    def is_rebindable(self, queue: PartitionQueue) -> bool:
        return queue.unbound or queue is self._reserved

    @property
    def reserved_queue(self) -> PartitionQueue | None:
        # Without a batch there is nothing that would end it: its record may have found no room.
        return self._reserved if self._reserved is not None and self._reserved.batches else None

    def should_reserve(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        if self._reserved is not None or batch.closed or batch.no_linger or queue.batches:
            return False
        brokers = self._conditions.brokers
        if brokers is None or not brokers.may_be_waited_for(queue.lane):
            return False
        return self._minimum_share.is_below(queue.partition, batch.size)

    def on_reserved(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._minimum_share.add(queue.partition, batch.size)
        batch.credit(batch.size)
        self._conditions.reserved_queues[queue] = None
        self._reserved = queue

    def extra_linger(self, queue: PartitionQueue) -> float:
        brokers = self._conditions.brokers
        if queue.unbound or brokers is None:
            return 0.0
        return brokers.p95_latency(queue.lane)

    def on_batch_moved(self, queue: PartitionQueue) -> None:
        self._conditions.reserved_queues.pop(queue, None)
        self.on_batch_closed(queue)

    def on_batch_closed(self, queue: PartitionQueue) -> None:
        if queue is self._reserved:
            self._reserved = None
            self._minimum_share.write_off(queue.partition)

    def on_sent(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        size = batch.sealed_size
        self._topic.fair_share.add(queue.partition, size)
        # A reserved batch was credited when its records were appended.
        self._minimum_share.add(queue.partition, max(0, size - batch.credited_bytes))
        if batch.rebindable:
            self.on_batch_moved(queue)

    def update_metadata(self, view: TopicView) -> None:
        near, routes = self._conditions.rack.brokers, self._topic.lanes_by_partition(view)
        if self._topic.fair_share.update(view, near, routes):
            self._minimum_share.update(self._topic.fair_share.competing)

    def reset(self) -> None:
        self._reserved = None


class RoundRobinBinding(LateBinding):
    """Late binding without regard to load: the sender hands batches out in turn, by bytes."""

    def on_sent(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        pass  # counted when it was bound


class Kip794(PartitionStrategy):
    """KIP-794 as Java ships it (``RecordAccumulator.append`` with ``BuiltInPartitioner``)."""

    __slots__ = ("_conditions", "_eligible", "_load_as_of", "_near", "_topic", "partitioner")

    def __init__(
        self,
        topic: TopicBuffer,
        sticky_bytes: int,
        random31: Random31,
        conditions: BrokerConditions,
    ) -> None:
        self.partitioner = BuiltInPartitioner(sticky_bytes, random31, self.show_load, self.near)
        self._eligible: _Eligible | None = None
        self._near: tuple[TopicView, frozenset[int], tuple[int, ...]] | None = None
        self._topic = topic
        self._conditions = conditions
        self._load_as_of = 0

    def choose_queue(self, record: Record, view: TopicView) -> PartitionQueue:
        return self._topic.queue(self.partitioner.current(view).partition)

    def queue_for_new_batch(
        self, queue: PartitionQueue, record: Record, view: TopicView
    ) -> PartitionQueue:
        # A switch that had waited for the batch boundary.
        self.partitioner.update(0, view, all_full=queue.all_full)
        return self.choose_queue(record, view)

    def on_append(
        self, queue: PartitionQueue, batch: ProducerBatch, nbytes: int, view: TopicView
    ) -> None:
        self.partitioner.update(nbytes, view, all_full=queue.all_full)

    def reset(self) -> None:
        self.partitioner.reset()

    def show_load(self) -> None:
        """Give the partitioner the queue lengths, before it draws: as they are after the sender's
        last pass, looked at once for each pass, so that keyed records never pay for them.

        Two deliberate deviations from Java (KIP-794 specification, quirks a to c): a partition
        never used counts as an empty queue instead of switching adaptivity off, and a broker that
        cannot take requests is left out even when nothing is queued for it.
        """
        view, found = self._topic.view, self._conditions
        if self._load_as_of == found.sender_passes or view is None:
            return
        self._load_as_of = found.sender_passes
        eligible = self._eligible
        if eligible is None or not eligible.holds(view, found.kip794_unavailable):
            eligible = self._eligible = _Eligible(view, frozenset(found.kip794_unavailable))
        sizes = [0] * len(eligible.partitions)
        for partition, queue in self._topic.queues.items():
            if queue.batches and partition in eligible.places:
                sizes[eligible.places[partition]] = len(queue.batches)
        near = frozenset(self.near(view))
        self.partitioner.load = load_table(sizes, eligible.partitions, view.partition_count, near)

    def near(self, view: TopicView) -> tuple[int, ...]:
        """The partitions led in the client's rack: looked for once in each view."""
        rack, known = self._conditions.rack, self._near
        if known is None or known[0] is not view or known[1] != rack.brokers:
            known = self._near = (view, rack.brokers, rack.near(view))
        return known[2]


class _Eligible:
    """The partitions that may be drawn, as long as the view and the outages are the same."""

    __slots__ = ("_unavailable", "_view", "partitions", "places")

    def __init__(self, view: TopicView, unavailable: frozenset[int]) -> None:
        self._view = view
        self._unavailable = unavailable
        self.partitions = tuple(
            p.partition for p in view.partitions if p.leader >= 0 and p.leader not in unavailable
        )
        self.places = {partition: place for place, partition in enumerate(self.partitions)}
        """Where each stands in ``partitions``."""

    def holds(self, view: TopicView, unavailable: Collection[int]) -> bool:
        return view is self._view and self._unavailable == frozenset(unavailable)
