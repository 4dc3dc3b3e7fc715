"""Where a record without partition waits: the one seam between ``send`` and the partitioners.

The accumulator asks a topic's :class:`Choice` for a queue, once per record, and tells it what
became of the answer. Records whose partition is given, by the caller or by their key's hash, do
not come here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkaclient.producer.partitioner import BuiltInPartitioner, load_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.batch import ProducerBatch
    from kafkaclient.producer.floor import ShareFloor
    from kafkaclient.producer.partition import PartitionQueue
    from kafkaclient.producer.partitioner import Random31
    from kafkaclient.producer.record import Record
    from kafkaclient.producer.topic import TopicBuffer

__all__ = ["BuiltInChoice", "Choice", "LateChoice", "Outages", "RotatingChoice"]


class Outages:
    """What the sender has found out about the brokers, for the topics' choices."""

    __slots__ = ("excludes", "passes", "reserved", "unavailable")

    def __init__(self) -> None:
        self.passes = 0
        """How often the sender has gone over everything."""
        self.unavailable: Collection[int] = ()
        """The brokers that KIP-794 leaves out, as of the last pass."""
        self.excludes: Callable[[int], bool] = lambda _node_id: False
        """Whether late binding leaves a broker out at present."""
        self.reserved: dict[PartitionQueue, None] = {}
        """The queues that may hold batches set aside for their partition's share."""


class Choice(Protocol):
    """One topic's choice; ``view`` is the topic's metadata, which is known by then."""

    def queue_for(self, record: Record, view: TopicView) -> PartitionQueue:
        """The queue that the record goes to."""

    def next_queue(self, queue: PartitionQueue, record: Record, view: TopicView) -> PartitionQueue:
        """``queue`` has no batch with room for the record: where to go instead, if elsewhere."""

    def appended(self, queue: PartitionQueue, nbytes: int, view: TopicView) -> None:
        """A record that was asked about added ``nbytes`` to a batch of the queue."""

    def movable(self, queue: PartitionQueue, view: TopicView) -> bool:
        """Whether a batch opened in the queue for such a record may yet go elsewhere."""

    def launched(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch leaves for the first time, whatever its records were bound by."""

    def follow(self, view: TopicView) -> None:
        """Take up new metadata."""

    def reset(self) -> None:
        """Start anew: the topic has lost partitions, or was not known before."""


class LateChoice:
    """Late binding: the sender chooses when a broker can take the batch.

    But for the records set aside for partitions below the share floor: they wait in a batch of
    their partition, which moves when its broker falls out of order.
    """

    __slots__ = ("_floor", "_outages", "_topic")

    def __init__(self, topic: TopicBuffer, floor: ShareFloor, outages: Outages) -> None:
        self._topic = topic
        self._floor = floor
        self._outages = outages

    def queue_for(self, record: Record, view: TopicView) -> PartitionQueue:
        if view.partition_count == 1:
            return self._topic.queue(0)  # it keeps the order in which its records were sent
        while (partition := self._floor.lowest()) is not None:
            queue = self._topic.queue(partition)
            retrying = queue.batches and queue.batches[0].attempts
            if not retrying and not self._outages.excludes(queue.leader):
                self._outages.reserved[queue] = None
                return queue
            self._floor.excuse(partition)
        return self._topic.unbound

    def next_queue(self, queue: PartitionQueue, record: Record, view: TopicView) -> PartitionQueue:
        # One batch is set aside at a time; what is more does not wait for a slow broker.
        waiting = view.partition_count > 1 and queue.batches
        return self._topic.unbound if waiting else queue

    def appended(self, queue: PartitionQueue, nbytes: int, view: TopicView) -> None:
        if not queue.unbound:
            self._floor.add(queue.partition, nbytes)

    def movable(self, queue: PartitionQueue, view: TopicView) -> bool:
        return view.partition_count > 1

    def launched(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._topic.spread.add(queue.partition, batch.size)
        if not batch.movable:  # else it was counted as its records came
            self._floor.add(queue.partition, batch.size)

    def follow(self, view: TopicView) -> None:
        self._topic.spread.follow(view)
        self._floor.follow(self._topic.spread.competing)

    def reset(self) -> None:
        pass


class RotatingChoice(LateChoice):
    """Late binding without regard to load: the sender hands batches out in turn, by bytes."""

    def launched(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        pass  # counted when it was bound


class BuiltInChoice:
    """KIP-794 as Java ships it (``RecordAccumulator.append`` with ``BuiltInPartitioner``)."""

    __slots__ = ("_load_as_of", "_outages", "_topic", "partitioner")

    def __init__(
        self, topic: TopicBuffer, sticky_bytes: int, random31: Random31, outages: Outages
    ) -> None:
        self.partitioner = BuiltInPartitioner(sticky_bytes, random31, self.show_load)
        self._topic = topic
        self._outages = outages
        self._load_as_of = 0

    def queue_for(self, record: Record, view: TopicView) -> PartitionQueue:
        return self._topic.queue(self.partitioner.current(view).partition)

    def next_queue(self, queue: PartitionQueue, record: Record, view: TopicView) -> PartitionQueue:
        # A switch that had waited for the batch boundary.
        self.partitioner.update(0, view, all_full=queue.all_full)
        return self.queue_for(record, view)

    def appended(self, queue: PartitionQueue, nbytes: int, view: TopicView) -> None:
        self.partitioner.update(nbytes, view, all_full=queue.all_full)

    def movable(self, queue: PartitionQueue, view: TopicView) -> bool:
        return False

    def launched(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        pass

    def follow(self, view: TopicView) -> None:
        pass

    def reset(self) -> None:
        self.partitioner.reset()

    def show_load(self) -> None:
        """Give the partitioner the queue lengths, before it draws: as they are after the sender's
        last pass, looked at once for each pass, so that keyed records never pay for them.

        Two deliberate deviations from Java (KIP-794 specification, quirks a to c): a partition
        never used counts as an empty queue instead of switching adaptivity off, and a broker that
        cannot take requests is left out even when nothing is queued for it.
        """
        view, outages = self._topic.view, self._outages
        if self._load_as_of == outages.passes or view is None:
            return
        self._load_as_of = outages.passes
        sizes, partitions = [], []
        for known in view.partitions:
            if known.leader < 0 or known.leader in outages.unavailable:
                continue
            queue = self._topic.queues.get(known.partition)
            sizes.append(len(queue.batches) if queue is not None else 0)
            partitions.append(known.partition)
        self.partitioner.load = load_table(sizes, partitions, view.partition_count)
