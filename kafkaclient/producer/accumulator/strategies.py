"""The built-in partition strategies: late binding, round-robin and KIP-794."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkaclient.producer.batches.strategy import PartitionStrategy
from kafkaclient.producer.partitioning.kip794 import BuiltInPartitioner, load_table
from kafkaclient.producer.partitioning.rack import Rack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.partitioning.kip794 import Random31
    from kafkaclient.producer.partitioning.minimum_share import MinimumShare

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

    def spare(self, lane: int) -> bool:
        """Whether the lane's broker is in order and could take another request."""

    def in_order(self, lane: int) -> bool:
        """Whether the broker would take requests if it had not its share of them already."""

    def worth_waiting(self, lane: int) -> bool:
        """Whether records may wait for the broker in order that it gets its share."""

    def usual_latency(self, lane: int) -> float:
        """What a Produce request to the broker usually takes at the most, in seconds."""


class BrokerConditions:
    """What the sender has found out, for the topics' choices."""

    __slots__ = ("brokers", "passes", "rack", "set_aside", "takes_fresh", "unavailable")

    def __init__(self, rack: Rack | None = None) -> None:
        self.rack = rack or Rack()
        """The brokers that are near, and preferred for it."""
        self.passes = 0
        """How often the sender has gone over everything."""
        self.unavailable: Collection[int] = ()
        """The brokers that KIP-794 leaves out, as of the last pass."""
        self.brokers: Brokers | None = None
        self.takes_fresh: Callable[[PartitionQueue], bool] = lambda _queue: True
        """Whether a batch that was never sent could leave from the queue at once."""
        self.set_aside: dict[PartitionQueue, None] = {}
        """The queues that hold a batch set aside for their partition's share."""


class LateBinding(PartitionStrategy):
    """Late binding: the sender chooses when a broker can take the batch.

    But for the records set aside for a partition below the share floor while its broker is free:
    their batch waits for company until the floor is reached, and moves when the broker falls out
    of order.
    """

    __slots__ = ("_circumstances", "_filled", "_floor", "_looked", "_topic")

    def __init__(
        self, topic: TopicBuffer, floor: MinimumShare, circumstances: BrokerConditions
    ) -> None:
        self._topic = topic
        self._floor = floor
        self._circumstances = circumstances
        self._filled: PartitionQueue | None = None
        """The queue that records are set aside in."""
        self._looked = 0
        """In which pass of the sender nobody was found to set records aside for."""

    def queue_for(self, record: Record, view: TopicView) -> PartitionQueue:
        if view.partition_count == 1:
            return self._topic.queue(0)  # it keeps the order in which its records were sent
        if self._filled is not None and not self._filled.batches:
            self._filled = None  # its batch has expired
        queue = self._filled
        if queue is None and self._looked != self._circumstances.passes:
            queue = self._filled = self._find()
        return queue or self._topic.unbound

    def _find(self) -> PartitionQueue | None:
        brokers = self._circumstances.brokers
        # Not past those that wait already: what is set aside would overtake them.
        idle = brokers is not None and not self._topic.unbound.batches
        partition = self._floor.lowest(brokers.spare) if brokers and idle else None
        queue = None if partition is None else self._topic.queue(partition)
        if queue is None or queue.batches or not self._circumstances.takes_fresh(queue):
            self._looked = self._circumstances.passes
            return None
        self._circumstances.set_aside[queue] = None
        return queue

    def next_queue(self, queue: PartitionQueue, record: Record, view: TopicView) -> PartitionQueue:
        if queue.batches and queue is self._filled:
            self._filled = None  # one batch at a time, so that nobody waits twice
            return self._topic.unbound
        return queue

    def appended(
        self, queue: PartitionQueue, batch: ProducerBatch, nbytes: int, view: TopicView
    ) -> None:
        if queue is not self._filled:
            return
        self._floor.add(queue.partition, nbytes)
        batch.counted += nbytes
        if not self._floor.below(queue.partition) or batch.full:
            batch.close()
            self._filled = None

    def stays(self, queue: PartitionQueue) -> bool:
        return queue is not self._filled

    def movable(self, queue: PartitionQueue) -> bool:
        return queue.unbound or queue is self._filled

    @property
    def filling(self) -> PartitionQueue | None:
        # Without a batch there is nothing that would end it: its record may have found no room.
        return self._filled if self._filled is not None and self._filled.batches else None

    def fills(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        if self._filled is not None or batch.closed or batch.hurried or queue.batches:
            return False
        brokers = self._circumstances.brokers
        if brokers is None or not brokers.worth_waiting(queue.lane):
            return False
        return self._floor.below(queue.partition, batch.size)

    def set_aside(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._floor.add(queue.partition, batch.size)
        batch.counted = batch.size
        self._circumstances.set_aside[queue] = None
        self._filled = queue

    def hold(self, queue: PartitionQueue) -> float:
        brokers = self._circumstances.brokers
        if queue.unbound or brokers is None:
            return 0.0
        return brokers.usual_latency(queue.lane)

    def moved(self, queue: PartitionQueue) -> None:
        self._circumstances.set_aside.pop(queue, None)
        self.closed(queue)

    def closed(self, queue: PartitionQueue) -> None:
        if queue is self._filled:
            self._filled = None
            self._floor.settle(queue.partition)

    def launched(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._topic.spread.add(queue.partition, batch.size)
        # What was set aside has been counted as its records came.
        self._floor.add(queue.partition, max(0, batch.size - batch.counted))
        if batch.movable:
            self.moved(queue)

    def follow(self, view: TopicView) -> None:
        near, routes = self._circumstances.rack.brokers, self._topic.routes(view)
        if self._topic.spread.follow(view, near, routes):
            self._floor.follow(self._topic.spread.competing)

    def reset(self) -> None:
        self._filled = None


class RoundRobinBinding(LateBinding):
    """Late binding without regard to load: the sender hands batches out in turn, by bytes."""

    def launched(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        pass  # counted when it was bound


class Kip794(PartitionStrategy):
    """KIP-794 as Java ships it (``RecordAccumulator.append`` with ``BuiltInPartitioner``)."""

    __slots__ = ("_circumstances", "_eligible", "_load_as_of", "_near", "_topic", "partitioner")

    def __init__(
        self,
        topic: TopicBuffer,
        sticky_bytes: int,
        random31: Random31,
        circumstances: BrokerConditions,
    ) -> None:
        self.partitioner = BuiltInPartitioner(sticky_bytes, random31, self.show_load, self.near)
        self._eligible: _Eligible | None = None
        self._near: tuple[TopicView, frozenset[int], tuple[int, ...]] | None = None
        self._topic = topic
        self._circumstances = circumstances
        self._load_as_of = 0

    def queue_for(self, record: Record, view: TopicView) -> PartitionQueue:
        return self._topic.queue(self.partitioner.current(view).partition)

    def next_queue(self, queue: PartitionQueue, record: Record, view: TopicView) -> PartitionQueue:
        # A switch that had waited for the batch boundary.
        self.partitioner.update(0, view, all_full=queue.all_full)
        return self.queue_for(record, view)

    def appended(
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
        view, found = self._topic.view, self._circumstances
        if self._load_as_of == found.passes or view is None:
            return
        self._load_as_of = found.passes
        eligible = self._eligible
        if eligible is None or not eligible.holds(view, found.unavailable):
            eligible = self._eligible = _Eligible(view, frozenset(found.unavailable))
        sizes = [0] * len(eligible.partitions)
        for partition, queue in self._topic.queues.items():
            if queue.batches and partition in eligible.places:
                sizes[eligible.places[partition]] = len(queue.batches)
        near = frozenset(self.near(view))
        self.partitioner.load = load_table(sizes, eligible.partitions, view.partition_count, near)

    def near(self, view: TopicView) -> tuple[int, ...]:
        """The partitions led in the client's rack: looked for once in each view."""
        rack, known = self._circumstances.rack, self._near
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
