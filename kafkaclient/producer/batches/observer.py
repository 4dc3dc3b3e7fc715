"""What `reports.py` implements for the hooks: one call per event of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue


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
