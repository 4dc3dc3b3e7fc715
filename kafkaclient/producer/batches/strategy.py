"""The seam between ``send`` and the partitioners: which queue a record without partition joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.record import Record

__all__ = ["PartitionStrategy"]


class PartitionStrategy:
    """One topic's choice; ``view`` is the topic's metadata, which is known by then."""

    __slots__ = ()

    def choose_queue(self, record: Record, view: TopicView) -> PartitionQueue:
        """The queue that the record goes to."""
        raise NotImplementedError

    def queue_for_new_batch(
        self, queue: PartitionQueue, record: Record, view: TopicView
    ) -> PartitionQueue:
        """``queue`` has no batch with room for the record: where to go instead, if elsewhere."""
        return queue

    def on_append(
        self, queue: PartitionQueue, batch: ProducerBatch, nbytes: int, view: TopicView
    ) -> None:
        """A chosen record added ``nbytes`` to a batch of a queue that is not sticky."""

    def is_sticky(self, queue: PartitionQueue) -> bool:
        """Whether records go to the queue's open batch until the batch is closed or bound, so that
        :meth:`on_append` need not count them."""
        return False

    def is_rebindable(self, queue: PartitionQueue) -> bool:
        """Whether a batch opened in the queue for such a record may yet go elsewhere."""
        return False

    def extra_linger(self, queue: PartitionQueue) -> float:
        """For how long such a batch waits for company, if that is longer than the linger."""
        return 0.0

    def on_batch_closed(self, queue: PartitionQueue) -> None:
        """Such a batch takes no more records."""

    def on_batch_moved(self, queue: PartitionQueue) -> None:
        """Such a batch has left the queue, for its partition or for another one."""

    @property
    def reserved_queue(self) -> PartitionQueue | None:
        """The queue whose broker is kept free for a batch that records are set aside in."""
        return None

    def should_reserve(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """A batch without partition could go to this one at once; whether it is to wait there for
        company instead."""
        return False

    def on_reserved(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """It does, and has got the partition."""

    def on_sent(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch leaves for the first time, whatever its records were bound by."""

    def update_metadata(self, view: TopicView) -> None:
        """Take up new metadata."""

    def reset(self) -> None:
        """Start anew: the topic has lost partitions, or was not known before."""
