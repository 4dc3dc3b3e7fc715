"""What is recorded of a batch."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BatchRow"]


class BatchRow(NamedTuple):
    """A batch that got an outcome. Times in seconds of the producer's clock since it was started.

    None stands for what never happened: a batch that failed before it had a partition has no
    decision either.
    """

    client_id: str
    topic: str
    partition: int
    """-1: it never had one."""
    broker: int
    """The leader that it was first sent to; -1: it was never sent."""
    records: int
    bytes: int
    """On the wire; of a batch that was never sent, as estimated."""
    attempts: int
    created_s: float
    bound_s: float | None
    """When its partition was decided."""
    sent_s: float | None
    """When it was first sent."""
    acknowledged_s: float | None
    """None for a failure, and with acks=0, where nothing is acknowledged."""
    queued_batches: int | None
    """At the decision: what else waited in the queue that the batch waited in, or went to."""
    queued_bytes: int | None
    in_flight: int | None
    """At the decision: Produce requests in flight to the partition's leader."""
    window: int | None
    """At the decision: how many requests its leader may have in flight."""
    bound_by: str | None
    """What the decision was: ``late``, ``rotation``, ``floor`` or ``append``."""
    error: str | None
    """The class name of the failure."""
