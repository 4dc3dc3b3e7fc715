"""Where records wait: the topics' batches, in memory that is bounded by bytes.

Java: ``RecordAccumulator``. :meth:`RecordAccumulator.append` takes records in. ``ready_queues``
knows which batches may be sent, batch_drainer.py takes them out, and ``incomplete`` applies their
outcome and their expiry. Nothing here reads a clock or touches a socket.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.errors import defect
from kafkaclient.producer.accumulator.binding import BatchBinding, Detours
from kafkaclient.producer.accumulator.buffer_pool import BatchFactory, BufferPool
from kafkaclient.producer.accumulator.compressor import BatchCompressor, InlineCompression
from kafkaclient.producer.accumulator.incomplete import IncompleteBatches
from kafkaclient.producer.accumulator.partition_strategies import (
    BrokerConditions,
    Kip794,
    LateBinding,
    RoundRobinBinding,
)
from kafkaclient.producer.accumulator.ready_queues import Linger, ReadyQueues
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import new_delivery
from kafkaclient.producer.batches.direct_append import TopicAppendSlots
from kafkaclient.producer.batches.topic_buffer import EVERY, TopicBuffer
from kafkaclient.producer.partitioning.fair_share import FairShare, MinimumShare
from kafkaclient.producer.partitioning.partitioners import Rack
from kafkaclient.producer.settings import MAX_OPEN_SHARE, AccumulatorSettings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Iterable

    from kafkaclient.cluster.view import Broker, TopicView
    from kafkaclient.errors import KafkaError
    from kafkaclient.metrics.producer import ProducerMetrics
    from kafkaclient.producer.accumulator.compressor import CompressionExecutor
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.idempotence import ProducerIdentity
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.topic_buffer import BatchObserver, PartitionStrategy
    from kafkaclient.producer.partitioning.kip794 import Random31
    from kafkaclient.producer.wakeup import Wakeup


class RecordAccumulator:
    """The buffers between ``send`` and the :class:`Sender`.

    ``wakeup`` is told when there is work, and ``identity`` of each batch that fails.
    ``new_result(topic)`` makes the result of a new batch. ``background`` compresses large batches.
    ``new_strategy`` makes a topic's partition strategy (default: by the settings).
    """

    def __init__(
        self,
        settings: AccumulatorSettings,
        *,
        identity: ProducerIdentity,
        random31: Random31,
        wakeup: Wakeup,
        metrics: ProducerMetrics,
        new_result: Callable[[str], BatchResult] = BatchResult,
        background: CompressionExecutor | None = None,
        observer: BatchObserver | None = None,
        new_strategy: Callable[[TopicBuffer], PartitionStrategy] | None = None,
    ) -> None:
        self.settings = settings
        self.identity = identity
        self.observer = observer
        self.buffer_pool = BufferPool(settings.buffer_memory)
        self.topics: dict[str, TopicBuffer] = {}
        self.append_slots: dict[str, TopicAppendSlots] = {}
        """By topic: the shortcuts past :meth:`append` (direct_append.py)."""
        self.compressor = BatchCompressor(
            settings.codec,
            settings.level,
            self.buffer_pool,
            background=background or InlineCompression(),
            wakeup=wakeup,
        )
        flushes: dict[asyncio.Future[None], int] = {}
        self._linger = Linger(settings, self.buffer_pool, flushes)
        self.ready_queues = ReadyQueues(
            one_in_flight=settings.one_in_flight,
            identity=identity,
            compressor=self.compressor,
            wakeup=wakeup,
            linger=self._linger,
        )
        self._batch_factory = BatchFactory(
            settings,
            small_batch_bytes=self.compressor.small_batch_bytes,
            transactional=identity.transactional,
        )
        self.incomplete = IncompleteBatches(
            settings,
            self.buffer_pool,
            self.ready_queues,
            self._batch_factory,
            flushes,
            identity,
            observer=observer,
        )
        self.conditions = BrokerConditions(Rack(settings.rack), self.ready_queues.accepts_new_batch)
        self.binding = BatchBinding(self.ready_queues, self.conditions, metrics, observer)
        self.detours = Detours(self.topics, self.ready_queues, adaptive=settings.adaptive)
        self._sticky_bytes = max(1, settings.batch_size)
        self._open_for = MAX_OPEN_SHARE * settings.delivery_timeout
        """How long a batch takes records, in seconds."""
        self._wakeup = wakeup
        self._metrics = metrics
        self._random31 = random31
        self._new_result = new_result
        self._on_only_record_awaited = self._only_record_awaited
        """Bound once, not for each batch."""
        self._new_strategy = new_strategy or self._built_in_strategy

    def __repr__(self) -> str:
        return (
            f"<RecordAccumulator topics={len(self.topics)} incomplete={len(self.incomplete)} "
            f"{self.buffer_pool!r}>"
        )

    def topic(self, name: str) -> TopicBuffer:
        """The topic's buffer, made if there is none yet."""
        name = str.__str__(name)  # a subclass, such as an enum, may override it
        buffer = self.topics.get(name)
        if buffer is None:
            self.identity.take_up_topic()
            slots = self.append_slots[name] = TopicAppendSlots(
                ignore_keys=self.settings.ignore_keys, clock=self.settings.slot_clock
            )
            fair_share = FairShare(self._random31)
            buffer = self.topics[name] = TopicBuffer(
                name, self._new_strategy, fair_share, slots, self.buffer_pool.shares
            )
        return buffer

    def close_append_slots(self, topic: TopicBuffer) -> None:
        """Records of the topic go through :meth:`append` from now on, behind those that wait."""
        self.append_slots.pop(topic.name, None)

    def open_append_slots(self, topic: TopicBuffer) -> None:
        """Records of the topic may use append slots again, if no record waits."""
        if EVERY not in topic.waiting and not topic.awaiting_partitions:
            self.append_slots[topic.name] = topic.append_slots

    # --- in: from send ------------------------------------------------------------------------

    def append(
        self,
        topic: TopicBuffer,
        partition: int | None,
        record: Record,
        now: float,
        force: bool = False,
        since: float | None = None,
    ) -> Delivery | None:
        """Append a record to its partition's open batch, or to a new one. None: no buffer space.
        The records of a ``send_batch`` get a batch of their own, behind the open batch.

        With ``partition`` None the topic's strategy chooses. ``force`` goes beyond the buffer
        memory, for a record that is in memory already. The topic's metadata must be known. The
        record's delivery timeout runs from ``since`` (default: ``now``): it joins no batch that
        expires later (the record would outlive its timeout), nor one that expires much earlier
        (the record would fail too soon).
        """
        created, chosen = now if since is None else since, partition is None
        view, strategy = topic.known_view, topic.strategy
        if partition is None:
            queue = strategy.choose_queue(record, view)
        else:
            queue = topic.queue(partition)
            self.binding.end_reservation(queue, now)
        final = not chosen
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
                before = 0
                batch = self._open(queue, record, now, created, chosen=chosen, force=force)
                if batch is None:
                    return None
                break
            queue, final = elsewhere, True
        sticky = chosen and strategy.is_sticky(queue)
        if chosen and not sticky:
            strategy.on_append(queue, batch, batch.size - before, view)
        batch.note_record(left_to_producer=chosen and record.key is None)
        if batch.full:
            self.ready_queues.schedule(queue, now)
        self._install_append_slot(queue, batch, now, unkeyed=sticky)
        return new_delivery(batch.result, record.timestamp)

    def _install_append_slot(
        self, queue: PartitionQueue, batch: ProducerBatch, now: float, unkeyed: bool
    ) -> None:
        """Let later records for the partition, or ``unkeyed`` ones, skip :meth:`append`, unless
        they would expire too early with the batch."""
        slot, slots = batch.append_slot, queue.topic.append_slots
        if (
            slot is None
            or queue.partition in queue.topic.waiting
            or batch.rebindable != queue.unbound
            or now > batch.created + self._open_for
        ):
            return
        slots.use_for(batch.created + self._open_for - now)
        if unkeyed:
            slots.set_unkeyed(slot)
        if not queue.unbound and not batch.any_partition:
            slots.set(queue.partition, slot)

    def _filled_up(self, batch: ProducerBatch) -> None:
        # A full batch is due at any time.
        self.ready_queues.schedule(batch.queue, batch.created)

    def _only_record_awaited(self) -> None:
        """A task awaits a batch's only record. If there is no other batch, the batch does not
        linger: the task may send the next record only after this one (as in Nagle's algorithm)."""
        batch = self.incomplete.only
        if batch is not None and not batch.closed:
            batch.stop_lingering()
            self.ready_queues.schedule(batch.queue, batch.created)

    def _fit(
        self, batch: ProducerBatch, record: Record, created: float, force: bool
    ) -> bool | None:
        """Append to the open batch, growing it within its limit. None: no buffer space."""
        if record.batch is not None or not 0 <= created - batch.created <= self._open_for:
            return False
        if batch.append(record):
            return True
        growth = batch.growth_for(record)
        if growth is None:
            return False
        least, best = growth
        # With little buffer memory left, take all of it: growing record by record is slow.
        granted = max(least, min(best, self.buffer_pool.room(batch.share)))
        if not self.buffer_pool.try_take(granted, batch.share):
            if not force:
                return None
            granted = least
            self.buffer_pool.force(least)
        batch.grow(granted)
        return batch.append(record)

    def _open(
        self,
        queue: PartitionQueue,
        record: Record,
        now: float,
        created: float,
        chosen: bool,
        force: bool,
    ) -> ProducerBatch | None:
        """A new batch with the record at the end of the queue. None: no buffer space. ``chosen``:
        the topic's strategy chose the queue."""
        upper_bound, buffer_pool = record.upper_bound, self.buffer_pool
        records, capacity = record.batch, upper_bound
        if records is None:
            room = buffer_pool.room(queue.share)
            capacity = self._batch_factory.capacity_for(queue, upper_bound, room, now)
        if not buffer_pool.try_take(capacity, queue.share):
            if not force:
                return None
            buffer_pool.force(capacity)
        batch, fits = None, False
        try:
            strategy = queue.topic.strategy
            rebindable = chosen and strategy.is_rebindable(queue)
            batch_result = self._new_result(queue.topic.name)
            batch_result.on_only_record_awaited = self._on_only_record_awaited
            batch = self._batch_factory.new(
                queue,
                batch_result,
                limit=max(self.settings.batch_size, upper_bound),
                capacity=capacity,
                created=created,
                rebindable=rebindable,
            )
            if strategy.may_move:
                batch.set_any_partition()
            batch.linger_until(self._linger.until(queue, now, rebindable=rebindable))
            if records is None:
                fits = batch.append(record)
            else:
                batch.adopt(records)
                fits = True
        finally:
            if not fits:
                buffer_pool.give_back(capacity if batch is None else batch.set_charge(0))
        if not fits:
            raise defect(
                f"a record for {queue.tp} was not sent: it is larger than its upper bound of "
                f"{upper_bound} bytes"
            )
        if not queue.unbound:
            self.binding.opened(batch, queue, now, chosen=chosen)
        queue.enqueue(batch)
        self.incomplete.add(batch)
        if records is None:
            batch.open_append_slot(partial(self._filled_up, batch))
        self.ready_queues.schedule(queue, now)
        # A batch that may not be sent yet has no other timer. The sender fails it once it expires.
        self._wakeup.wake_at(created + self.settings.delivery_timeout)
        return batch

    # --- out: to the sender -------------------------------------------------------------------

    def take_sealed(self, now: float) -> None:
        """Schedule the queues whose batches were compressed in the background since the sender's
        last pass. To be called at the start of each pass."""
        for batch, error in self.compressor.finished():
            if error is not None:
                self.incomplete.fail_and_free(batch, error, now)
            else:
                self.ready_queues.schedule(batch.queue, now)

    def reset_share_to_average(self, lane: int) -> None:
        """The lane's broker is healthy again: it gets no more than its share from now on."""
        for topic in self.topics.values():
            topic.fair_share.reset_to_average(lane)

    def fail_batches(self, error: KafkaError, now: float, *, in_flight: bool) -> int:
        """Fail all batches, those in flight only if ``in_flight``. Returns how many records they
        have."""
        batches = [batch for batch in self.incomplete if in_flight or not batch.in_flight]
        for batch in batches:
            self._metrics.records_failed(batch.result.topic, batch.count)
            self.incomplete.fail_without_answer(batch, error, now)
        return sum(batch.count for batch in batches)

    # --- as a whole ---------------------------------------------------------------------------

    def update_brokers(self, brokers: Iterable[Broker]) -> None:
        """Note which brokers are in the client's rack."""
        if self.conditions.rack.update(brokers):
            for topic in self.topics.values():
                if topic.view is not None:
                    topic.strategy.update_metadata(topic.view)

    def update_topic(self, view: TopicView, now: float) -> TopicBuffer | None:
        """Use new metadata of a topic: leaders, epochs, partition count. None: no record was sent
        to the topic."""
        topic = self.topics.get(view.name)
        if topic is None:
            return None
        changed = topic.changed_queues(view)
        recreated = topic.set_view(view)
        for queue in changed:
            leader, epoch = -1, queue.leader_epoch
            if queue.partition < view.partition_count:
                _, leader, epoch, *_ = view.partitions[queue.partition]
            self.ready_queues.set_leader(queue, leader, epoch, now)
            if recreated:
                self.ready_queues.schedule(queue, now)
        if view.partition_count == 1:
            self.binding.collapse_to_single_partition(topic, now)
        return topic

    def leave_cluster(self, now: float) -> None:
        """The client is in another cluster. Batches without an outcome wait for their leaders
        there, and get new sequence numbers. Nothing is on the wire."""
        self.identity.leave_cluster()
        for topic in self.topics.values():
            topic.leave_cluster()
            for queue in topic.queues.values():
                self.ready_queues.set_leader(queue, -1, -1, now)

    def forget_topic(self, name: str) -> None:
        """The metadata of the topic was dropped: the next record has it fetched."""
        topic = self.topics.get(name)
        if topic is not None:
            topic.forget_view()

    def release(self, name: str) -> bool:
        """Free the buffer of a topic whose metadata is about to be dropped, as it was not used for
        ``metadata.max.idle.ms``. False: a record without an outcome depends on the metadata."""
        topic = self.topics.get(name)
        if topic is None:
            return True
        if topic.in_use:
            return False
        if self.identity.forget_sequences(queue.sequence for queue in topic.queues.values()):
            del self.topics[name], self.append_slots[name]
        return True

    def close(self, now: float) -> None:
        """Send all batches without lingering. The producer takes no more records."""
        self._linger.close()
        self.incomplete.reschedule(now)

    def end_pass(self, unavailable: Collection[int]) -> None:
        """A pass of the sender has ended; the brokers ``unavailable`` are left out by KIP-794.

        Partitions are now drawn by the queue lengths after this pass. A topic's queue lengths are
        read at its first draw: they cost in proportion to its partitions, and keyed records need
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
        minimum_share = MinimumShare(settings.share_floor, self._sticky_bytes)
        return LateBinding(topic, minimum_share, self.conditions)
