"""What a partition strategy implements, and what an observer of batches implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.record import Record


# --- The interface of partition strategies --------------------------------------------------------


class PartitionStrategy:
    """One topic's choice. ``view`` is the topic's metadata.

    A *chosen* record is one whose partition the strategy chooses. A chosen batch was opened for
    such a record.
    """

    __slots__ = ()

    may_move: bool
    """Whether a chosen batch of records without key goes to another partition if its own one is
    deleted. (An unbound batch always does.)"""

    def choose_queue(self, record: Record, view: TopicView) -> PartitionQueue:
        """The queue that the record goes to."""
        raise NotImplementedError

    def queue_for_new_batch(
        self, queue: PartitionQueue, record: Record, view: TopicView
    ) -> PartitionQueue:
        """The queue to open a batch in for a chosen record, as ``queue`` has no batch with room."""
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
        """Whether a chosen batch of the queue may yet be bound to another partition."""
        return False

    def extra_linger(self, queue: PartitionQueue) -> float:
        """For how long a chosen batch lingers, in seconds, if that is longer than linger.ms."""
        return 0.0

    def on_batch_closed(self, queue: PartitionQueue) -> None:
        """A chosen batch of the queue takes no more records."""

    def on_batch_moved(self, queue: PartitionQueue) -> None:
        """A chosen batch has left the queue: it was sent, or lost its partition."""

    @property
    def reserved_queue(self) -> PartitionQueue | None:
        """The queue whose broker is kept free for a reserved batch. None: no batch is reserved."""
        return None

    def should_reserve(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether an unbound batch that could be sent to this partition now should stay open until
        the partition has its minimum share."""
        return False

    def on_reserved(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The batch was bound to this under-served partition and stays open there."""

    def on_sent(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch is sent for the first time, chosen or not."""

    def update_metadata(self, view: TopicView) -> None:
        """Use new metadata."""

    def reset(self) -> None:
        """Start over: the topic has lost partitions, or was not known before."""


# --- What `reports.py` implements for the hooks: one call per event of a batch --------------------


class BatchObserver(Protocol):
    """Called for each batch if a hook wants batches."""

    def on_bound(
        self, batch: ProducerBatch, target: PartitionQueue, bound_by: str, now: float
    ) -> None:
        """The batch, not in a queue at the moment, gets the partition of ``target``."""

    def on_sent(self, batch: ProducerBatch) -> None:
        """The batch was written to its broker, perhaps again."""

    def on_outcome(self, batch: ProducerBatch, now: float) -> None:
        """The batch has its outcome."""
