"""One topic's part of the accumulator: its queues, its partitioner, its parked records."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.producer.batch import CompressionRatio
from kafkaclient.producer.partition import UNBOUND, PartitionQueue
from kafkaclient.producer.partitioner import BuiltInPartitioner, load_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.delivery import Delivery, Receipt
    from kafkaclient.producer.record import Record
    from kafkaclient.producer.spread import Spread

__all__ = ["ParkedRecord", "TopicBuffer"]


class ParkedRecord(NamedTuple):
    """A record that arrived before its topic's metadata."""

    delivery: Delivery
    receipt: Receipt
    record: Record
    parked_at: float


class TopicBuffer:
    """``view`` is None until the topic's metadata is known (or after it was dropped as idle)."""

    __slots__ = (
        "batch_limit",
        "load_as_of",
        "name",
        "parked",
        "partitioner",
        "queues",
        "ratio",
        "spread",
        "unbound",
        "view",
        "waiting",
    )

    def __init__(self, name: str, partitioner: BuiltInPartitioner, spread: Spread) -> None:
        self.name = name
        self.batch_limit = 2**31 - 1
        """The size of batches that the topic takes, as learnt from MESSAGE_TOO_LARGE."""
        self.load_as_of = 0
        """After how many passes of the sender the partitioner was shown the queue lengths."""
        self.spread = spread
        self.unbound = PartitionQueue(self, UNBOUND)
        """Late binding: batches whose partition is chosen when a broker can take them."""
        self.view: TopicView | None = None
        self.partitioner = partitioner
        self.queues: dict[int, PartitionQueue] = {}
        """Created with the first record for the partition, never removed."""
        self.parked: deque[ParkedRecord] = deque()
        self.ratio = CompressionRatio()
        self.waiting = 0
        """How many callers of ``send`` wait, for metadata or for buffer space."""

    @property
    def in_use(self) -> bool:
        """Whether a record without an outcome depends on the topic's metadata."""
        return bool(
            self.waiting
            or self.parked
            or self.unbound.batches
            or any(queue.batches or queue.unacked for queue in self.queues.values())
        )

    def queue(self, partition: int) -> PartitionQueue:
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(self, partition)
            if self.view is not None and partition < self.view.partition_count:
                known = self.view.partitions[partition]
                queue.leader, queue.leader_epoch = known.leader, known.leader_epoch
        return queue

    def refresh_load(self, unavailable: Callable[[int], bool]) -> None:
        """Give the partitioner the queue lengths of this moment.

        Two deliberate deviations from Java (KIP-794 specification, quirks a to c): a partition
        never used counts as an empty queue instead of switching adaptivity off, and a broker that
        cannot take requests is left out even when nothing is queued for it.
        """
        if self.view is None:
            return
        sizes, partitions = [], []
        for known in self.view.partitions:
            if known.leader < 0 or unavailable(known.leader):
                continue
            queue = self.queues.get(known.partition)
            sizes.append(len(queue.batches) if queue is not None else 0)
            partitions.append(known.partition)
        self.partitioner.load = load_table(sizes, partitions, self.view.partition_count)
