"""The partition strategies: late binding, round-robin, KIP-794, and the user's partitioner."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex

from kafkaclient.errors import PartitionerError
from kafkaclient.producer.batches.topic_buffer import PartitionStrategy
from kafkaclient.producer.partitioning.kip794 import BuiltInPartitioner, load_table
from kafkaclient.producer.user_code import text_of_user_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.partitioning.fair_share import MinimumShare
    from kafkaclient.producer.partitioning.kip794 import Random31
    from kafkaclient.producer.partitioning.partitioners import LoadView, Partitioner, Rack


# --- The built-in partition strategies: late binding, round-robin and KIP-794 ---------------------


class Brokers(Protocol):
    """What the strategies ask about brokers."""

    def has_capacity(self, lane: int) -> bool:
        """Whether the lane's broker is healthy and could take another request."""

    def keeps_reserved(self, lane: int) -> bool:
        """Whether batches that are reserved for the broker's partitions stay there."""

    def may_be_waited_for(self, lane: int) -> bool:
        """Whether records may linger for the broker until its partitions have their share."""

    def oldest_wait(self, lane: int, now: float) -> float:
        """For how many seconds the broker's oldest request has waited; 0.0: there is none."""

    def p95_latency(self, lane: int) -> float:
        """The 95th percentile of the broker's Produce latencies, in seconds."""


class BrokerConditions:
    """What the sender knows of the brokers, for the topics' strategies."""

    __slots__ = (
        "accepts_new_batch",
        "brokers",
        "kip794_unavailable",
        "rack",
        "reserved_queues",
        "sender_passes",
    )

    def __init__(self, rack: Rack, accepts_new_batch: Callable[[PartitionQueue], bool]) -> None:
        self.rack = rack
        """The brokers in the client's rack, which are preferred."""
        self.sender_passes = 0
        """How many passes the sender has made."""
        self.kip794_unavailable: Collection[int] = ()
        """The brokers that KIP-794 leaves out, as of the last pass."""
        self.brokers: Brokers | None = None
        """Assigned by the sender, whose lanes need the accumulator first."""
        self.accepts_new_batch = accepts_new_batch
        """Whether a batch that was never sent could be sent from the queue at once."""
        self.reserved_queues: dict[PartitionQueue, None] = {}
        """The queues with a batch that is reserved for their partition's minimum share."""


class LateBinding(PartitionStrategy):
    """Late binding: the sender chooses the partition when a broker can take the batch.

    One batch at a time is *reserved*: bound early to a partition below its minimum share whose
    broker is free. It stays open until the partition has its minimum share, and is unbound when the
    broker becomes unhealthy.
    """

    __slots__ = (
        "_conditions",
        "_minimum_share",
        "_reserved",
        "_searched_in_pass",
        "_topic",
        "may_move",
    )

    def __init__(
        self, topic: TopicBuffer, minimum_share: MinimumShare, conditions: BrokerConditions
    ) -> None:
        self.may_move = False
        self._topic = topic
        self._minimum_share = minimum_share
        self._conditions = conditions
        self._reserved: PartitionQueue | None = None
        """The queue of the reserved batch."""
        self._searched_in_pass = 0
        """The pass of the sender in which no partition was found to reserve a batch for."""

    def choose_queue(self, record: Record, view: TopicView) -> PartitionQueue:
        if len(view.partitions) == 1:
            return self._topic.queue(0)  # a single partition keeps the order of the records
        queue = self._reserved
        if queue is not None and not queue.batches:
            queue = self._reserved = None  # its batch has expired
        if queue is None and self._searched_in_pass != self._conditions.sender_passes:
            queue = self._reserved = self._find()
        return queue or self._topic.unbound

    def _find(self) -> PartitionQueue | None:
        conditions, topic = self._conditions, self._topic
        # No reserved batch overtakes an unbound one.
        if conditions.brokers is not None and not topic.unbound.batches:
            partition = self._minimum_share.most_underserved(conditions.brokers.has_capacity)
            if partition is not None:
                queue = topic.queue(partition)
                if not queue.batches and conditions.accepts_new_batch(queue):
                    conditions.reserved_queues[queue] = None
                    return queue
        self._searched_in_pass = conditions.sender_passes
        return None

    def queue_for_new_batch(
        self, queue: PartitionQueue, record: Record, view: TopicView
    ) -> PartitionQueue:
        if queue.batches and queue is self._reserved:
            self._reserved = None  # one batch at a time, so that no batch lingers twice
            return self._topic.unbound
        return queue

    def on_append(
        self, queue: PartitionQueue, batch: ProducerBatch, nbytes: int, view: TopicView
    ) -> None:
        self._minimum_share.add(queue.partition, nbytes)
        batch.credit(nbytes)
        if not self._minimum_share.is_below(queue.partition) or batch.full:
            batch.close()
            self._reserved = None

    def is_sticky(self, queue: PartitionQueue) -> bool:
        return queue is not self._reserved

    def is_rebindable(self, queue: PartitionQueue) -> bool:
        return queue.unbound or queue is self._reserved

    @property
    def reserved_queue(self) -> PartitionQueue | None:
        # Without a batch nothing would end the reservation: the record may have found no room.
        return self._reserved if self._reserved is not None and self._reserved.batches else None

    def should_reserve(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        if self._reserved is not None or batch.closed or batch.no_linger or queue.batches:
            return False
        brokers = self._conditions.brokers
        if brokers is None or not brokers.may_be_waited_for(queue.lane):
            return False
        return self._minimum_share.is_below(queue.partition, batch.size)

    def on_reserved(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._minimum_share.add(queue.partition, batch.size)
        batch.credit(batch.size)
        self._conditions.reserved_queues[queue] = None
        self._reserved = queue

    def extra_linger(self, queue: PartitionQueue) -> float:
        brokers = self._conditions.brokers
        if queue.unbound or brokers is None:
            return 0.0
        return brokers.p95_latency(queue.lane)

    def on_batch_moved(self, queue: PartitionQueue) -> None:
        self._conditions.reserved_queues.pop(queue, None)
        self.on_batch_closed(queue)

    def on_batch_closed(self, queue: PartitionQueue) -> None:
        if queue is self._reserved:
            self._reserved = None
            self._minimum_share.write_off(queue.partition)

    def on_sent(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        size = batch.sealed_size
        self._topic.fair_share.add(queue.partition, size)
        # A reserved batch was credited when its records were appended.
        self._minimum_share.add(queue.partition, max(0, size - batch.credited_bytes))
        if batch.rebindable:
            self.on_batch_moved(queue)

    def update_metadata(self, view: TopicView) -> None:
        near, routes = self._conditions.rack.brokers, self._topic.lanes_by_partition(view)
        if self._topic.fair_share.update(view, near, routes):
            self._minimum_share.update(self._topic.fair_share.competing)

    def reset(self) -> None:
        self._reserved = None


class RoundRobinBinding(LateBinding):
    """Late binding without regard to load: partitions take turns, by bytes."""

    def on_sent(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        pass  # counted when it was bound


class Kip794(PartitionStrategy):
    """KIP-794 as Java ships it (``RecordAccumulator.append`` with ``BuiltInPartitioner``)."""

    __slots__ = (
        "_conditions",
        "_eligible",
        "_load_as_of",
        "_near",
        "_topic",
        "may_move",
        "partitioner",
    )

    def __init__(
        self,
        topic: TopicBuffer,
        sticky_bytes: int,
        random31: Random31,
        conditions: BrokerConditions,
    ) -> None:
        self.may_move = True
        self.partitioner = BuiltInPartitioner(sticky_bytes, random31, self.show_load, self.near)
        self._eligible: _Eligible | None = None
        self._near: tuple[TopicView, frozenset[int], tuple[int, ...]] | None = None
        self._topic = topic
        self._conditions = conditions
        self._load_as_of = 0

    def choose_queue(self, record: Record, view: TopicView) -> PartitionQueue:
        return self._topic.queue(self.partitioner.current(view).partition)

    def queue_for_new_batch(
        self, queue: PartitionQueue, record: Record, view: TopicView
    ) -> PartitionQueue:
        # A switch that had waited for the batch boundary.
        self.partitioner.update(0, view, all_full=queue.all_full)
        return self.choose_queue(record, view)

    def on_append(
        self, queue: PartitionQueue, batch: ProducerBatch, nbytes: int, view: TopicView
    ) -> None:
        self.partitioner.update(nbytes, view, all_full=queue.all_full)

    def reset(self) -> None:
        self.partitioner.reset()

    def show_load(self) -> None:
        """Give the partitioner the queue lengths after the sender's last pass, before it draws.
        They are read once a pass, at the first draw, so that keyed records never pay for them.

        Two deliberate deviations from Java: a partition that was never used counts as an empty
        queue instead of switching adaptivity off, and a broker that cannot take requests is left
        out even when nothing is queued for it.
        """
        view, conditions = self._topic.view, self._conditions
        if self._load_as_of == conditions.sender_passes or view is None:
            return
        self._load_as_of = conditions.sender_passes
        eligible = self._eligible
        if eligible is None or not eligible.is_current(view, conditions.kip794_unavailable):
            eligible = self._eligible = _Eligible(view, frozenset(conditions.kip794_unavailable))
        sizes = [0] * len(eligible.partitions)
        for partition, queue in self._topic.queues.items():
            if queue.batches and partition in eligible.index_of:
                sizes[eligible.index_of[partition]] = len(queue.batches)
        near = frozenset(self.near(view))
        self.partitioner.load = load_table(sizes, eligible.partitions, view.partition_count, near)

    def near(self, view: TopicView) -> tuple[int, ...]:
        """The partitions led in the client's rack, computed once for each view."""
        rack, known = self._conditions.rack, self._near
        if known is None or known[0] is not view or known[1] != rack.brokers:
            known = self._near = (view, rack.brokers, rack.near(view))
        return known[2]


class _Eligible:
    """The partitions that may be drawn, while the view and the unavailable brokers are the same."""

    __slots__ = ("_unavailable", "_view", "index_of", "partitions")

    def __init__(self, view: TopicView, unavailable: frozenset[int]) -> None:
        self._view = view
        self._unavailable = unavailable
        self.partitions = tuple(
            p.partition for p in view.partitions if p.leader >= 0 and p.leader not in unavailable
        )
        self.index_of = {partition: n for n, partition in enumerate(self.partitions)}
        """By partition: its index in ``partitions``."""

    def is_current(self, view: TopicView, unavailable: Collection[int]) -> bool:
        return view is self._view and self._unavailable == frozenset(unavailable)


# --- The partition strategy that calls a ``Partitioner`` for every record -------------------------


class CustomPartitioner(PartitionStrategy):
    """Checks each answer of the partitioner. ``may_move``: see :attr:`PartitionStrategy.may_move`.

    A partitioner with a method ``on_new_batch`` is called as Java before 4.0 does: it is asked
    again when a new batch is needed. Others are asked exactly once a record, as in Java 4.x
    (KAFKA-18295).
    """

    __slots__ = ("_load", "_metadata", "_on_new_batch", "_partition", "_topic", "_who", "may_move")

    def __init__(
        self,
        topic: TopicBuffer,
        partitioner: Partitioner,
        metadata: Metadata,
        load: LoadView,
        *,
        may_move: bool = False,
    ) -> None:
        self._topic = topic
        self.may_move = may_move
        self._metadata = metadata
        self._load = load
        self._who = type(partitioner).__qualname__
        self._partition: Callable[..., Any] = partitioner.partition
        self._on_new_batch: Callable[..., Any] | None = getattr(partitioner, "on_new_batch", None)

    def choose_queue(self, record: Record, view: TopicView) -> PartitionQueue:
        name, count = self._topic.name, view.partition_count
        try:
            answer = self._partition(
                name, record.key, record.value, self._metadata.view, self._load
            )
            partition = answer if answer.__class__ is int else _as_int(answer)
        except BaseException as error:
            raise self._refused(f"raised {text_of_user_error(error)}") from error
        if partition is None:
            raise self._refused(f"gave a {type(answer).__name__}, not an int")
        if not 0 <= partition < count:
            gave = str(partition) if -(2**63) <= partition < 2**63 else "a huge number"
            raise self._refused(f"gave {gave}, not one of the partitions 0 to {count - 1}")
        return self._topic.queue(partition)

    def queue_for_new_batch(
        self, queue: PartitionQueue, record: Record, view: TopicView
    ) -> PartitionQueue:
        if self._on_new_batch is None:
            return queue
        try:
            self._on_new_batch(self._topic.name, self._metadata.view, queue.partition)
        except BaseException as error:
            raise self._refused(f"raised {text_of_user_error(error)} in on_new_batch") from error
        return self.choose_queue(record, view)

    def _refused(self, what: str) -> PartitionerError:
        return PartitionerError(
            f"a record for topic {self._topic.name!r} was not sent: the partitioner {self._who} "
            f"{what}"
        )


def _as_int(answer: object) -> int | None:
    """The answer as an int: numpy's integers are accepted. None: it is a bool, or no number."""
    if isinstance(answer, bool) or not isinstance(answer, SupportsIndex):
        return None
    return index(answer)
