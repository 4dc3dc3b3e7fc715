"""What telemetry records about each batch, and the calls by which it learns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue

__all__ = ["BatchObserver", "BindingFacts"]


@dataclass(slots=True)
class BindingFacts:
    """How a batch came to its partition, and the load at that time.

    Times are the clock's, in seconds. The parts of a split batch share one object.
    """

    bound_by: str | None = None
    bound_at: float | None = None
    queued_batches: int | None = None
    queued_bytes: int | None = None
    in_flight: int | None = None
    window: int | None = None
    broker: int = -1
    sent_at: float | None = None


class BatchObserver(Protocol):
    """Called for each batch while telemetry is recorded."""

    def on_bound(
        self, batch: ProducerBatch, target: PartitionQueue, bound_by: str, now: float
    ) -> None:
        """The batch, not in a queue at the moment, gets the partition of ``target``."""

    def on_sent(self, batch: ProducerBatch) -> None:
        """The batch was written to its broker, perhaps again."""

    def on_outcome(self, batch: ProducerBatch, now: float) -> None:
        """The batch has its outcome."""
