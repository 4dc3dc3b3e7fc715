"""One topic's queues, its compression ratio, the largest batch that it takes, and the interfaces of
partition strategies and of observers of batches."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from kafkaclient.producer.batches.partition_queue import BufferShares, PartitionQueue
from kafkaclient.producer.settings import NO_LANE, UNBOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.direct_append import TopicAppendSlots
    from kafkaclient.producer.batches.partition_queue import BufferShare
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.partitioning.fair_share import FairShare


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


# --- How well a topic's batches compress, as far as the last batches show -------------------------

# Java's CompressionRatioEstimator: the estimate rises at once and sinks slowly, so that a batch
# rarely gets larger than estimated.
_RATIO_STEP_UP = 0.05
_RATIO_STEP_DOWN = 0.005


class CompressionRatio:
    """The expected compressed size of a topic's batches, as a fraction of the raw size."""

    __slots__ = ("value",)

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def observe(self, ratio: float) -> None:
        if ratio > self.value:
            self.value = max(self.value + _RATIO_STEP_UP, ratio)
        elif ratio < self.value:
            self.value = max(self.value - _RATIO_STEP_DOWN, ratio)


# --- The largest batch that a topic takes ---------------------------------------------------------

_NO_LIMIT = 2**31 - 1
_LIFE_S = 300.0  # seconds after which a limit is doubled: the topic may take more by now


class BatchLimit:
    """Lowered by MESSAGE_TOO_LARGE, for batches that may grow while their broker is busy.

    A producer does not learn that a topic's ``max.message.bytes`` was raised. So the limit is
    doubled every five minutes; if that is too much, one batch is split again. Times are in seconds.
    """

    __slots__ = ("_rises_at", "_value")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The topic was deleted and created again."""
        self._value, self._rises_at = _NO_LIMIT, 0.0

    def lower(self, size: int, now: float) -> None:
        """The topic takes no batch of more than ``size`` bytes, as far as is known."""
        self._value = min(self.at(now), size)
        self._rises_at = now + _LIFE_S

    def at(self, now: float) -> int:
        """The limit in bytes at the time ``now``."""
        while self._value < _NO_LIMIT and now >= self._rises_at:
            self._value = min(2 * self._value, _NO_LIMIT)
            self._rises_at += _LIFE_S
        return self._value


# --- One topic's part of the accumulator: its queues, its partition strategy ----------------------

EVERY = -3
"""Stands for all partitions of the topic where a waiting send names its partition. A record that
waits for the topic's metadata or its serializer, a record behind it, and a bulk call hold up the
records of every partition."""


class TopicBuffer:
    """A topic that records were sent to. Only methods of this class assign its attributes.

    ``view`` is None until the topic's metadata is known, and after it was dropped as unused.
    """

    __slots__ = (
        "_awaiting_partitions",
        "append_slots",
        "avoided",
        "awaiting_partitions",
        "batch_limit",
        "fair_share",
        "last_bound_partition",
        "last_view",
        "name",
        "queues",
        "ratio",
        "shares",
        "side_lane_of",
        "strategy",
        "topic_id",
        "unbound",
        "view",
        "waiting",
    )

    def __init__(
        self,
        name: str,
        new_strategy: Callable[[TopicBuffer], PartitionStrategy],
        fair_share: FairShare,
        slots: TopicAppendSlots,
        shares: BufferShares | None = None,
    ) -> None:
        self.name = name
        self.topic_id: bytes | None = None
        """None: not known, or the brokers know no topic ids."""
        self.append_slots = slots
        self.shares = BufferShares() if shares is None else shares
        self.batch_limit = BatchLimit()
        self.fair_share = fair_share
        self.unbound = PartitionQueue(self, UNBOUND)
        """Late binding: batches whose partition is chosen when a broker can take them."""
        self.view: TopicView | None = None
        self.last_view: TopicView | None = None
        """The latest metadata, kept when ``view`` is dropped: queued batches are sent by it."""
        self.side_lane_of: Mapping[int, int] = {}
        """The partitions that use the side lane of their leader, and its number."""
        self.avoided: frozenset[int] = frozenset()
        """The partitions that get no records without key (binding.py)."""
        self.queues: dict[int, PartitionQueue] = {}
        """By partition, made for the first record of the partition."""
        self.waiting: set[int] = set()
        """The partitions that records wait for, behind which later records wait, too;
        ``UNBOUND`` for records without a partition, :data:`EVERY` for all records."""
        self._awaiting_partitions: Counter[int] = Counter()
        self.awaiting_partitions: Mapping[int, int] = self._awaiting_partitions
        """By partition that the latest metadata does not have: how many records wait for newer
        metadata. Read-only."""
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

    @property
    def in_use(self) -> bool:
        """Whether a record without an outcome depends on the topic's metadata."""
        return bool(
            self.waiting
            or self.awaiting_partitions
            or self.unbound.batches
            or any(queue.batches or queue.unacked for queue in self.queues.values())
        )

    def lanes_by_partition(self, view: TopicView) -> list[int] | None:
        """By partition, the lane of records without key (-1: none), if these are not simply the
        leaders."""
        if not self.side_lane_of and not self.avoided:
            return None
        routes = [partition.leader for partition in view.partitions]
        for partition, lane in self.side_lane_of.items():
            if partition < len(routes):  # else the topic was created again
                routes[partition] = lane
        for partition in self.avoided:
            if partition < len(routes):
                routes[partition] = NO_LANE
        return routes

    def queue(self, partition: int) -> PartitionQueue:
        """The partition's queue, made if there is none yet."""
        queue = self.queues.get(partition)
        if queue is None:
            leader, epoch, view = -1, -1, self.view or self.last_view
            lane = NO_LANE
            if view is not None and partition < view.partition_count:
                known = view.partitions[partition]
                leader, epoch = known.leader, known.leader_epoch
                lane = self.side_lane_of.get(partition, leader)
            queue = PartitionQueue(self, partition, leader=leader, leader_epoch=epoch, lane=lane)
            self.queues[partition] = queue
        return queue

    def changed_queues(self, view: TopicView) -> list[PartitionQueue]:
        """The queues of the partitions that differ between the latest metadata and ``view``."""
        before = self.last_view.partitions if self.last_view is not None else ()
        common, after = min(len(before), view.partition_count), view.partitions
        return [q for n, q in self.queues.items() if n >= common or before[n] is not after[n]]

    def set_view(self, view: TopicView) -> bool:
        """Use new metadata. Returns whether the topic was deleted and created again."""
        recreated = self._set_topic_id(view.topic_id)
        if recreated or self.view is None or view.partition_count < self.view.partition_count:
            self.strategy.reset()
        self.view = self.last_view = view
        self.append_slots.reset(view.partition_count)
        self.strategy.update_metadata(view)
        return recreated

    def forget_view(self) -> None:
        """The metadata is dropped: the next record has it fetched."""
        self.view = None
        self.append_slots.reset(0)

    def leave_cluster(self) -> None:
        """The topic is one of another cluster now, whose metadata is not known yet."""
        self.forget_view()
        self.last_view = self.topic_id = None
        self.batch_limit.forget()
        self.strategy.reset()
        for queue in self.queues.values():
            queue.leave_cluster()

    def _set_topic_id(self, topic_id: UUID | None) -> bool:
        """Whether the id belongs to another topic of the same name, created since (KIP-516)."""
        before, self.topic_id = self.topic_id, None if topic_id is None else topic_id.bytes
        if None in (before, self.topic_id) or before == self.topic_id:
            return False
        self.batch_limit.forget()
        for queue in self.queues.values():
            queue.on_topic_recreated()
        return True

    def set_detours(self, side_lane_of: Mapping[int, int], avoided: frozenset[int]) -> None:
        """These partitions use side lanes, and these get no records without key."""
        self.side_lane_of, self.avoided = side_lane_of, avoided

    def must_wait(self, place: int) -> bool:
        """Whether a record for the partition, or ``UNBOUND``, has to wait behind others."""
        return bool(self.waiting) and (EVERY in self.waiting or place in self.waiting)

    def note_waiting(self, place: int, waiting: bool) -> None:
        """Whether records of a place wait: a partition, ``UNBOUND`` or :data:`EVERY`."""
        if waiting:
            self.waiting.add(place)
            if place == UNBOUND:
                self.append_slots.set_unkeyed(None)
            elif place != EVERY:
                self.append_slots.set(place, None)
        else:
            self.waiting.discard(place)

    def share_of(self, place: int) -> BufferShare:
        """Which share of the buffer memory records of the place take."""
        if place < 0:
            return self.shares.unbound
        queue, view = self.queues.get(place), self.view or self.last_view
        if queue is not None:
            return queue.share
        known = view is not None and place < view.partition_count
        return self.shares.of(view.partitions[place].leader if view is not None and known else -1)

    def await_partition(self, partition: int) -> None:
        """A record waits for metadata that has the partition."""
        self._awaiting_partitions[partition] += 1

    def end_await_partition(self, partition: int) -> None:
        """A record has stopped waiting for metadata that has the partition."""
        self._awaiting_partitions[partition] -= 1
        if not self._awaiting_partitions[partition]:
            del self._awaiting_partitions[partition]

    def switch_to(self, partition: int) -> bool:
        """A batch was bound to the partition by choice. Whether the one before went elsewhere."""
        switched = self.last_bound_partition not in (partition, UNBOUND)
        self.last_bound_partition = partition
        return switched
