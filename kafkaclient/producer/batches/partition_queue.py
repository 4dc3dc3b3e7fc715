"""The queue of one partition: batches waiting, and batches sent but not acknowledged."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.sequence import PartitionSequence
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer

__all__ = ["UNBOUND", "PartitionQueue", "QueueState"]

UNBOUND = -1
"""The number of the queue whose batches have no partition yet."""


class QueueState(Enum):
    """Where a partition's queue stands; :meth:`ReadyQueues.schedule` is the only mover."""

    IDLE = "nothing is queued"
    LINGER = "the open batch waits for company, until its linger time"
    BACKOFF = "the first batch waits before its retry"
    BLOCKED = "the first batch waits for batches on the wire, or for the producer id"
    SEALING = "the first batch is being compressed, or waits for its turn to be"
    LEADERLESS = "no broker leads the partition, as far as is known"
    READY = "in the line for its leader, for a free slot"


class PartitionQueue:
    """One partition of one topic, as the accumulator sees it."""

    __slots__ = (
        "batches",
        "batches_bound",
        "bytes_bound",
        "bytes_sent",
        "in_flight",
        "lane",
        "leader",
        "leader_epoch",
        "partition",
        "ready_number",
        "records_sent",
        "sequence",
        "state",
        "target_lane",
        "timer",
        "topic",
        "tp",
        "typical_batch_size",
        "unacked",
        "unbound",
    )

    def __init__(self, topic: TopicBuffer, partition: int) -> None:
        self.topic = topic
        self.tp = TopicPartition(topic.name, partition)
        self.partition = partition
        self.unbound = partition == UNBOUND
        """Whether it is the queue of the batches that have no partition yet."""
        self.batches: deque[ProducerBatch] = deque()
        """Waiting to be sent; only the last one may be open."""
        self.unacked: deque[ProducerBatch] = deque()
        """Sent at least once and neither acknowledged nor given up, oldest first; those not on
        the wire are in ``batches`` as well, for their retry."""
        self.in_flight = 0
        self.leader = -1
        self.leader_epoch = -1
        self.lane = -1
        """The lane that it stands in, or has batches on the wire in (routes.py)."""
        self.target_lane = -1
        """The lane that it should change to, once nothing is on the wire."""
        self.state = QueueState.IDLE
        self.timer = 0.0
        """When the queue's timer (linger, back-off) runs out, for the one entry that counts."""
        self.ready_number = 0
        """Grows with each queue that becomes ready: who has the least was ready first."""
        self.sequence = PartitionSequence()
        self.typical_batch_size = 0
        """How large the last batch was that left, before compression."""
        self.batches_bound = 0
        """Batches and bytes that were sent for the first time, whatever became of them."""
        self.bytes_bound = 0
        self.bytes_sent = 0
        self.records_sent = 0

    def __repr__(self) -> str:
        return (
            f"<PartitionQueue {self.tp} leader={self.leader} {self.state.name} "
            f"queued={len(self.batches)} unacked={len(self.unacked)} on_wire={self.in_flight}>"
        )

    @property
    def is_deleted(self) -> bool:
        """Whether the topic was created anew without this partition."""
        view = self.topic.view or self.topic.last_view
        return view is not None and self.partition >= view.partition_count

    @property
    def replicas(self) -> tuple[int, ...]:
        """Those that have to confirm what is written with acks=all, as far as is known."""
        view = self.topic.view
        known = view is not None and self.partition < view.partition_count
        return view.partitions[self.partition].isr if view is not None and known else ()

    @property
    def waits_for(self) -> str:
        """What the queue waits for, to be told to people."""
        if self.unbound:
            return "any broker that is free"
        if self.leader >= 0:
            return f"broker {self.leader}"
        if self.is_deleted:
            return "their partition, which the topic has no more since it was created anew,"
        return "a leader of their partition"

    @property
    def all_full(self) -> bool:
        """Whether no queued batch takes records any more (Java: ``allBatchesFull``)."""
        return not self.batches or self.batches[-1].full

    @property
    def queued_bytes(self) -> int:
        return sum([batch.size for batch in self.batches])

    def on_topic_recreated(self) -> None:
        """The topic is another one now, with a log of its own for this partition."""
        self.sequence.on_log_recreated()
        for batch in self.unacked:
            batch.retry_at = 0.0

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a batch again for its retry, before all that were stamped or created later."""
        # Everything unacknowledged and not on the wire is waiting here, in front and in order.
        waiting = [b for b in self.unacked if b is batch or not b.in_flight]
        fresh = [b for b in self.batches if b not in waiting]
        self.batches = deque(waiting + fresh)
