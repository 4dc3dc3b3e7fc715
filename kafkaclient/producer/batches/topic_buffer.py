"""One topic's part of the accumulator: its queues, its choice of them, its line of waiters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.batch import CompressionRatio
from kafkaclient.producer.batches.batch_limit import BatchLimit
from kafkaclient.producer.batches.partition_queue import UNBOUND, PartitionQueue
from kafkaclient.producer.lane_id import NO_LANE

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.batches.direct_append import TopicAppendSlots
    from kafkaclient.producer.batches.strategy import PartitionStrategy
    from kafkaclient.producer.partitioning.fair_share import FairShare

__all__ = ["TopicBuffer"]


class TopicBuffer:
    """``view`` is None until the topic's metadata is known (or after it was dropped as idle)."""

    __slots__ = (
        "append_slots",
        "avoided",
        "awaiting_partitions",
        "batch_limit",
        "fair_share",
        "has_waiters",
        "last_bound_partition",
        "last_view",
        "name",
        "queues",
        "ratio",
        "side_lane_of",
        "strategy",
        "topic_id",
        "unbound",
        "view",
    )

    def __init__(
        self,
        name: str,
        new_strategy: Callable[[TopicBuffer], PartitionStrategy],
        fair_share: FairShare,
        slots: TopicAppendSlots,
    ) -> None:
        self.name = name
        self.topic_id: bytes | None = None
        """None while it is not known, and with brokers that know none."""
        self.append_slots = slots
        self.batch_limit = BatchLimit()
        self.fair_share = fair_share
        self.unbound = PartitionQueue(self, UNBOUND)
        """Late binding: batches whose partition is chosen when a broker can take them."""
        self.view: TopicView | None = None
        self.last_view: TopicView | None = None
        """The latest metadata, kept when it is dropped: batches on their way go on by it."""
        self.side_lane_of: dict[int, int] = {}
        """The partitions that go by another lane than their leader's first one, and by which."""
        self.avoided: frozenset[int] = frozenset()
        """The partitions that get no records that could go elsewhere (routes.py)."""
        self.queues: dict[int, PartitionQueue] = {}
        """Created with the first record for the partition."""
        self.has_waiters = False
        """Whether records wait, for metadata or for buffer space: later ones wait behind them.
        Assigned by topic_waiters.py only."""
        self.awaiting_partitions: Counter[int] = Counter()
        """For partitions that the topic does not have, as far as is known: how many records wait to
        hear whether it has grown."""
        self.ratio = CompressionRatio()
        self.strategy = new_strategy(self)
        self.last_bound_partition = UNBOUND
        """The partition of the latest batch that was bound by choice, not by key or caller."""

    @property
    def known_view(self) -> TopicView:
        """Raises ValueError while the topic's metadata is not known."""
        if self.view is None:
            raise ValueError(f"the metadata of topic {self.name!r} is not known yet")
        return self.view

    def set_topic_id(self, topic_id: UUID | None) -> bool:
        """Take up the topic's id; whether it is of another topic, created under this name since
        (KIP-516)."""
        before, self.topic_id = self.topic_id, None if topic_id is None else topic_id.bytes
        if None in (before, self.topic_id) or before == self.topic_id:
            return False
        self.batch_limit.forget()
        for queue in self.queues.values():
            queue.on_topic_recreated()
        return True

    @property
    def in_use(self) -> bool:
        """Whether a record without an outcome depends on the topic's metadata."""
        return bool(
            self.has_waiters
            or self.awaiting_partitions
            or self.unbound.batches
            or any(queue.batches or queue.unacked for queue in self.queues.values())
        )

    def lanes_by_partition(self, view: TopicView) -> list[int] | None:
        """By partition, the lane of records that could go elsewhere (-1: none), if these are not
        simply the leaders."""
        if not self.side_lane_of and not self.avoided:
            return None
        routes = [partition.leader for partition in view.partitions]
        for partition, lane in self.side_lane_of.items():
            if partition < len(routes):  # else the topic was created anew
                routes[partition] = lane
        for partition in self.avoided:
            if partition < len(routes):
                routes[partition] = NO_LANE
        return routes

    def changed_queues(self, view: TopicView) -> list[PartitionQueue]:
        """The queues of partitions that are not in ``view`` as they were in the last one."""
        before = self.last_view.partitions if self.last_view is not None else ()
        common = min(len(before), view.partition_count)
        after = view.partitions
        return [q for n, q in self.queues.items() if n >= common or before[n] is not after[n]]

    def queue(self, partition: int) -> PartitionQueue:
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(self, partition)
            view = self.view or self.last_view
            if view is not None and partition < view.partition_count:
                known = view.partitions[partition]
                queue.leader, queue.leader_epoch = known.leader, known.leader_epoch
                queue.target_lane = queue.lane = self.side_lane_of.get(partition, known.leader)
        return queue
