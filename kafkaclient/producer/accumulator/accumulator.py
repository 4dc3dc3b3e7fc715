"""Where records wait: the topics' batches, in memory that is bounded by bytes.

Java: ``RecordAccumulator``. Records come in through :meth:`RecordAccumulator.append`; ``lines``
knows which batches may leave, binder.py takes them out, and ``incomplete`` knows what becomes of
them. Nothing here reads a clock or touches a socket.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError, defect
from kafkaclient.producer.accumulator.binding import BatchBinding
from kafkaclient.producer.accumulator.buffer_pool import BufferPool
from kafkaclient.producer.accumulator.compressor import BatchCompressor, InlineCompression
from kafkaclient.producer.accumulator.detours import Detours
from kafkaclient.producer.accumulator.incomplete import IncompleteBatches
from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
from kafkaclient.producer.accumulator.strategies import (
    BrokerConditions,
    Kip794,
    LateBinding,
    RoundRobinBinding,
)
from kafkaclient.producer.batches.batch import ProducerBatch
from kafkaclient.producer.batches.delivery import BatchResult, Delivery
from kafkaclient.producer.batches.direct_append import AppendSlot, TopicAppendSlots
from kafkaclient.producer.batches.topic_buffer import TopicBuffer
from kafkaclient.producer.partitioning.fair_share import FairShare
from kafkaclient.producer.partitioning.minimum_share import MinimumShare
from kafkaclient.producer.partitioning.rack import Rack
from kafkaclient.producer.settings import GROWTH, AccumulatorSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kafkaclient.cluster.view import Broker, TopicView
    from kafkaclient.producer.accumulator.compressor import CompressionExecutor
    from kafkaclient.producer.batches.observer import BatchObserver
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.sequence import ProducerIdentity
    from kafkaclient.producer.batches.split import Make
    from kafkaclient.producer.batches.strategy import PartitionStrategy
    from kafkaclient.producer.partitioning.kip794 import Random31

__all__ = ["RecordAccumulator"]

_log = logging.getLogger(__name__)


class RecordAccumulator:
    """The buffers between ``send`` and the :class:`Sender`.

    ``wake(when)`` is called whenever there is work at the time ``when`` (0: now),
    ``on_switch(topic)`` when a batch of unkeyed records goes elsewhere than the one before it.
    ``on_failed(error)`` is called for every batch that fails. ``new_strategy(topic)`` makes the
    strategy of a topic (default: the built-in one). ``background`` compresses what is large.
    """

    def __init__(
        self,
        settings: AccumulatorSettings,
        *,
        identity: ProducerIdentity,
        random31: Random31,
        wake: Callable[[float], None],
        new_result: Callable[[str], BatchResult] = BatchResult,
        on_switch: Callable[[str], None] = lambda _topic: None,
        on_failed: Callable[[KafkaError], None] = lambda _error: None,
        observer: BatchObserver | None = None,
        new_strategy: Callable[[TopicBuffer], PartitionStrategy] | None = None,
        background: CompressionExecutor | None = None,
    ) -> None:
        self.settings = settings
        self.identity = identity
        self.buffer_pool = BufferPool(settings.buffer_memory)
        self.topics: dict[str, TopicBuffer] = {}
        self.append_slots: dict[str, TopicAppendSlots] = {}
        """By topic; see fastpath.py."""
        self.conditions = BrokerConditions(Rack(settings.rack))
        self._sticky_bytes = max(1, settings.batch_size)
        elastic = settings.late and settings.adaptive and settings.batch_size
        self._elastic_limit = settings.elastic_limit if elastic else 0
        self.compressor = BatchCompressor(
            settings.codec,
            settings.level,
            self.buffer_pool,
            background=background or InlineCompression(),
            wake=wake,
        )
        self.ready_queues = ReadyQueues(
            one_in_flight=settings.one_in_flight,
            identity=identity,
            compressor=self.compressor,
            wake=wake,
            hurried=self._no_linger,
        )
        self.incomplete = IncompleteBatches(
            self.buffer_pool,
            self.ready_queues,
            delivery_timeout=settings.delivery_timeout,
            on_failed=on_failed,
            observer=observer,
        )
        self.binding = BatchBinding(self.ready_queues, self.conditions, on_switch, observer)
        self.detours = Detours(self.topics, self.ready_queues, adaptive=settings.adaptive)
        self.conditions.accepts_new_batch = self.ready_queues.accepts_new_batch
        self._closed = False
        self._growth = GROWTH * settings.delivery_timeout
        """How long a batch takes records, in seconds."""
        self._wake = wake
        self._random31 = random31
        self._new_result = new_result
        self._new_strategy = new_strategy or self._built_in_strategy
        self._serials = count(1)

    def __repr__(self) -> str:
        return (
            f"<RecordAccumulator topics={len(self.topics)} incomplete={len(self.incomplete)} "
            f"{self.buffer_pool!r}>"
        )

    def topic(self, name: str) -> TopicBuffer:
        name = str.__str__(name)  # without what a subclass, such as an enum, makes of it
        buffer = self.topics.get(name)
        if buffer is None:
            self.identity.take_up_topic()
            slots = self.append_slots[name] = TopicAppendSlots(
                ignore_keys=self.settings.ignore_keys
            )
            fair_share = FairShare(self._random31)
            buffer = self.topics[name] = TopicBuffer(name, self._new_strategy, fair_share, slots)
        return buffer

    def close_append_slots(self, topic: TopicBuffer) -> None:
        """Records of the topic take the long way from now on, behind those that wait."""
        self.append_slots.pop(topic.name, None)

    def open_append_slots(self, topic: TopicBuffer) -> None:
        if not topic.has_waiters and not topic.awaiting_partitions:
            self.append_slots[topic.name] = topic.append_slots

    # --- in: from send ------------------------------------------------------------------------

    def append(
        self,
        topic: TopicBuffer,
        partition: int | None,
        record: Record,
        now: float,
        *,
        force: bool = False,
        since: float | None = None,
    ) -> Delivery | None:
        """Put a record into its partition's open batch, or a new one; None: no buffer space.

        ``partition`` None lets the topic's partitioner choose. ``force`` goes beyond the budget,
        for a record that is in memory already. The topic's metadata must be known. The record's
        delivery timeout runs from ``since`` (default: ``now``): it joins no batch that expires
        later, nor one that expires much earlier.
        """
        created = now if since is None else since
        view, strategy = topic.known_view, topic.strategy
        final = partition is not None
        if partition is None:
            queue = strategy.choose_queue(record, view)
        else:
            queue = topic.queue(partition)
            self.binding.end_reservation(queue, now)
        while True:
            batch = queue.batches[-1] if queue.batches else None
            if batch is not None and not batch.closed:
                before = batch.size
                fits = self._fit(batch, record, created, force=force)
                if fits is None:
                    return None
                if fits:
                    break
                batch.close()
                self.ready_queues.schedule(queue, now)
            elsewhere = queue if final else strategy.queue_for_new_batch(queue, record, view)
            if elsewhere is queue:
                batch = self._open(
                    queue, record, now, created, chosen=partition is None, force=force
                )
                if batch is None:
                    return None
                before = 0
                break
            queue, final = elsewhere, True
        if partition is None:
            strategy.on_append(queue, batch, batch.size - before, view)
        if not before or batch.full:
            self.ready_queues.schedule(queue, now)
        self._install_append_slot(queue, batch, now, chosen=partition is None)
        return batch.result.delivery_for_last(record.timestamp)

    def _filled_up(self, batch: ProducerBatch) -> None:
        # It is due whatever the time is by now.
        self.ready_queues.schedule(batch.queue, batch.created)

    def _awaited(self, batch: ProducerBatch) -> None:
        """Somebody awaits a batch's only record. If nothing else is under way, company is not to
        be expected: whoever would send it waits for this one (as with Nagle's algorithm)."""
        if len(self.incomplete) == 1 and not batch.closed:
            batch.no_linger = True
            batch.ready_at = batch.created
            self.ready_queues.schedule(batch.queue, batch.created)

    def _install_append_slot(
        self, queue: PartitionQueue, batch: ProducerBatch, now: float, *, chosen: bool
    ) -> None:
        """Where the record went, the next ones like it may go without being looked at one by one,
        unless somebody counts them."""
        topic = queue.topic
        if batch.rebindable != queue.unbound or batch.append_slot is None:
            return
        if now > batch.created + self._growth:
            return  # the next records would expire too early with it
        if chosen and topic.strategy.is_sticky(queue):
            topic.append_slots.set_unkeyed(batch.append_slot)
        if not queue.unbound:
            topic.append_slots.set(queue.partition, batch.append_slot)

    def _fit(
        self, batch: ProducerBatch, record: Record, created: float, *, force: bool
    ) -> bool | None:
        """Append to the open batch, growing it within its limit; None: no buffer space."""
        if not 0 <= created - batch.created <= self._growth:
            return False
        if batch.append(record):
            return True
        growth = batch.growth_for(record)
        if growth is None:
            return False
        least, best = growth
        # With little left, all of it: growing record by record is the slow way.
        granted = max(least, min(best, self.buffer_pool.room))
        if not self.buffer_pool.try_take(granted):
            if not force:
                return None
            granted = least
            self.buffer_pool.force(least)
        batch.charged += granted
        batch.builder.reserve(batch.builder.capacity + granted)
        return batch.append(record)

    def _open(
        self,
        queue: PartitionQueue,
        record: Record,
        now: float,
        created: float,
        *,
        chosen: bool,
        force: bool,
    ) -> ProducerBatch | None:
        """A new batch with the record at the end of the queue; None: no buffer space. ``chosen``:
        the queue is a partitioner's choice."""
        movable = chosen and queue.topic.strategy.is_rebindable(queue)
        limit = max(self.settings.batch_size, record.upper_bound)
        elastic_limit = min(self._elastic_limit, queue.topic.batch_limit.at(now))
        # What gets large is looked at when it does, in case it is compressed ahead.
        most = min(max(limit, elastic_limit), self.compressor.small_batch_bytes)
        usual = min(queue.typical_batch_size, most)
        capacity = ProducerBatch.first_capacity(limit, record.upper_bound, usual)
        capacity = max(record.upper_bound, min(capacity, self.buffer_pool.room))
        if not self.buffer_pool.try_take(capacity):
            if not force:
                return None
            self.buffer_pool.force(capacity)
        fits = False
        try:
            batch_result = self._new_result(queue.topic.name)
            batch = self._make(queue, batch_result, created, limit, capacity, next(self._serials))
            batch.rebindable, batch.any_partition = movable, movable or queue.unbound
            batch.ready_at = now + self.settings.linger
            if movable and not queue.unbound:
                batch.ready_at = max(batch.ready_at, now + queue.topic.strategy.extra_linger(queue))
            fits = batch.append(record)
        finally:
            if not fits:
                self.buffer_pool.give_back(capacity)
        if not fits:
            raise defect(
                f"a record for {queue.tp} was not sent: it is larger than its upper bound of "
                f"{record.upper_bound} bytes"
            )
        if not queue.unbound:
            self.binding.opened(batch, queue, now, chosen=chosen)
        queue.batches.append(batch)
        self.incomplete.add(batch)
        batch.append_slot = AppendSlot(
            batch.builder, batch_result, batch.raw_full, partial(self._filled_up, batch)
        )
        batch_result.awaited = partial(self._awaited, batch)
        # A batch that may not leave yet has no other timer than this one.
        self._wake(created + self.settings.delivery_timeout)
        return batch

    def _make(
        self,
        queue: PartitionQueue,
        batch_result: BatchResult,
        created: float,
        limit: int,
        capacity: int,
        serial: int,
    ) -> ProducerBatch:
        batch_result.partition = queue.partition
        batch = ProducerBatch(
            batch_result,
            queue,
            serial=serial,
            created=created,
            limit=limit,
            capacity=capacity,
            elastic_limit=min(self._elastic_limit, queue.topic.batch_limit.at(created)),
            codec=self.settings.codec,
            level=self.settings.level,
            ratio=queue.topic.ratio,
        )
        batch.charged = capacity
        batch.transactional = self.identity.transactional
        return batch

    # --- out: to the sender -------------------------------------------------------------------

    def is_sealed(self, batch: ProducerBatch, now: float) -> bool:
        """Whether the batch is compressed and may leave; a small one is by now."""
        error = self.compressor.compress_now(batch)
        if error is not None:
            self._not_sealed(batch, error, now)
        return batch.sealed

    def take_sealed(self, now: float) -> None:
        """Queues go on whose batches were compressed aside; to be called in each pass."""
        for batch, error in self.compressor.finished():
            if error is not None:
                self._not_sealed(batch, error, now)
            else:
                self.ready_queues.schedule(batch.queue, now)

    def _not_sealed(self, batch: ProducerBatch, cause: Exception, now: float) -> None:
        """A codec that fails costs that batch and no other."""
        _log.error("%r could not be compressed", batch, exc_info=cause)
        error = KafkaError(
            f"{batch.count} records to {batch.queue.tp} were not sent: compressing them with "
            f"{self.settings.codec.name.lower()} failed: {cause!r}"
        )
        error.__cause__ = cause
        self.incomplete.discard(batch, error, now)

    def begin_flight(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if self.identity.enabled and not batch.stamped:
            queue.sequence.stamp(batch, self.identity)
        if not batch.attempts:
            queue.unacked.append(batch)
            queue.batches_bound += 1
            queue.bytes_bound += batch.size
            queue.topic.strategy.on_sent(queue, batch)
        batch.rebindable = False
        batch.attempts += 1
        batch.leader_epoch = queue.leader_epoch
        batch.in_flight = True
        queue.in_flight += 1

    def reset_share_to_average(self, lane: int) -> None:
        """The lane's broker is in order again."""
        for topic in self.topics.values():
            topic.fair_share.reset_to_average(lane)

    def split(self, batch: ProducerBatch, now: float) -> None:
        """Halve a batch that its topic does not take as it is; see :class:`IncompleteBatches`."""
        size = max(self.settings.batch_size, batch.size // 2)
        batch.queue.topic.batch_limit.lower(size, now)
        self.incomplete.split(batch, self._in_place_of(batch), now)

    def sort_out(
        self,
        batch: ProducerBatch,
        errors: Mapping[int, KafkaError],
        error: KafkaError,
        now: float,
    ) -> None:
        """Go on without the records that the broker refused; see :class:`IncompleteBatches`."""
        self.incomplete.sort_out(batch, errors, error, self._in_place_of(batch), now)

    def _in_place_of(self, batch: ProducerBatch) -> Make:
        def make(capacity: int, batch_result: BatchResult) -> ProducerBatch:
            return self._make(
                batch.queue, batch_result, batch.created, capacity, capacity, batch.serial
            )

        return make

    # --- as a whole ---------------------------------------------------------------------------

    def update_brokers(self, brokers: Iterable[Broker]) -> None:
        """Take up which brokers are in the client's rack."""
        if self.conditions.rack.look(brokers):
            for topic in self.topics.values():
                if topic.view is not None:
                    topic.strategy.update_metadata(topic.view)

    def update_topic(self, view: TopicView, now: float) -> TopicBuffer | None:
        """Take up new metadata of a topic: leaders, epochs, partition count."""
        topic = self.topics.get(view.name)
        if topic is None:
            return None
        created_anew = topic.set_topic_id(view.topic_id)
        if created_anew or topic.view is None or view.partition_count < topic.view.partition_count:
            topic.strategy.reset()
        touched = topic.changed_queues(view)
        topic.view = topic.last_view = view
        topic.append_slots.reset(view.partition_count)
        topic.strategy.update_metadata(view)
        for queue in touched:
            leader, epoch = -1, queue.leader_epoch
            if queue.partition < view.partition_count:
                _, leader, epoch, *_ = view.partitions[queue.partition]
            self.ready_queues.set_leader(queue, leader, epoch, now)
            if created_anew:
                self.ready_queues.schedule(queue, now)
        if view.partition_count == 1:
            self.binding.collapse_to_single_partition(topic, now)
        return topic

    def forget_topic(self, name: str) -> None:
        """Metadata has dropped the topic: the next record asks for it again."""
        topic = self.topics.get(name)
        if topic is not None:
            topic.view = None
            topic.append_slots.reset(0)

    def release(self, name: str) -> bool:
        """Free what is kept for a topic whose metadata is about to be dropped, as it was not used
        for ``metadata.max.idle.ms``. False: a record without an outcome depends on the metadata."""
        topic = self.topics.get(name)
        if topic is None:
            return True
        if topic.in_use:
            return False
        if self.identity.forget_sequences(queue.sequence for queue in topic.queues.values()):
            del self.topics[name], self.append_slots[name]
        return True

    def close(self, now: float) -> None:
        """Send what is there without lingering; it is the producer that refuses more."""
        self._closed = True
        self.incomplete.reschedule(now)

    def end_pass(self, unavailable: Collection[int]) -> None:
        """The sender has gone over everything; the brokers ``unavailable`` are to be left out.

        From now on partitions are drawn by queue lengths of after this pass. A topic's are looked
        at with its first draw: they cost in proportion to its partitions, and keyed records draw
        none.
        """
        self.conditions.sender_passes += 1
        self.conditions.kip794_unavailable = unavailable

    def _built_in_strategy(self, topic: TopicBuffer) -> PartitionStrategy:
        settings = self.settings
        if not settings.late:
            return Kip794(topic, self._sticky_bytes, self._random31, self.conditions)
        if not settings.adaptive:
            return RoundRobinBinding(topic, MinimumShare(0.0, self._sticky_bytes), self.conditions)
        floor = MinimumShare(settings.share_floor, self._sticky_bytes)
        return LateBinding(topic, floor, self.conditions)

    def _no_linger(self) -> bool:
        # batch.size 0 means "do not batch": no record waits for company (KAFKA-14303).
        return (
            self._closed
            or self.settings.batch_size == 0
            or bool(self.incomplete.flushes)
            or bool(self.buffer_pool.waiters)
        )
