"""Batches that have no partition yet, get one, or give it up again before they leave.

Late binding chooses when a broker can take a batch; here is what becomes of the choice.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.partition_queue import UNBOUND

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.accumulator.strategies import BrokerConditions
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.observer import BatchObserver
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer

__all__ = ["BatchBinding"]


class BatchBinding:
    """Of one producer's batches. ``on_switch(topic)`` is called when a batch goes elsewhere than
    the one before it."""

    def __init__(
        self,
        lines: ReadyQueues,
        conditions: BrokerConditions,
        on_switch: Callable[[str], None],
        observer: BatchObserver | None,
    ) -> None:
        self._ready_queues = lines
        self._conditions = conditions
        self._on_switch = on_switch
        self.observer = observer

    def bind(self, batch: ProducerBatch, queue: PartitionQueue, by: str, now: float) -> None:
        """The batch, taken out of its topic's unbound queue, gets the partition of ``queue``."""
        if self.observer is not None:
            self.observer.on_bound(batch, queue, by, now)
        batch.bind(queue)
        self._note(queue)

    def opened(
        self, batch: ProducerBatch, queue: PartitionQueue, now: float, *, chosen: bool
    ) -> None:
        """A batch was opened in its partition, which was ``chosen`` if not given."""
        if chosen:
            self._note(queue)
        if self.observer is not None:
            self.observer.on_bound(batch, queue, "floor" if batch.rebindable else "append", now)

    def _note(self, queue: PartitionQueue) -> None:
        topic, partition = queue.topic, queue.partition
        if topic.last_bound_partition not in (partition, UNBOUND):
            self._on_switch(topic.name)
        topic.last_bound_partition = partition

    def reserve(self, batch: ProducerBatch, queue: PartitionQueue, now: float) -> None:
        """An open batch without partition waits for company in one that is below its floor."""
        self.bind(batch, queue, "floor", now)
        batch.rebindable = True
        queue.topic.strategy.on_reserved(queue, batch)
        batch.ready_at = max(batch.ready_at, now + queue.topic.strategy.extra_linger(queue))
        queue.batches.append(batch)
        self._ready_queues.schedule(queue, now)

    def end_reservation(self, queue: PartitionQueue, now: float) -> None:
        """A record that belongs to the partition has come: what is set aside there waits for
        company that it must not wait for."""
        if queue not in self._conditions.reserved_queues or not queue.batches:
            return
        batch = queue.batches[-1]
        if batch.rebindable and not batch.closed:
            batch.close()
            queue.topic.strategy.on_batch_closed(queue)
            self._ready_queues.schedule(queue, now)

    def unbind_unsendable(self, now: float) -> None:
        """What was meant for partitions that cannot be written to may go elsewhere, if its records
        don't care where."""
        for queue in list(self._ready_queues.leaderless):
            if queue.is_deleted:
                self._rescue_from_deleted_partition(queue, now)
        found, brokers = self._conditions.reserved_queues, self._conditions.brokers
        for queue in list(found):
            retrying = bool(queue.batches) and bool(queue.batches[0].attempts)
            avoided = queue.partition in queue.topic.avoided
            if retrying or avoided or brokers is None or not brokers.is_healthy(queue.lane):
                self._unbind(queue, now)

    def _unbind(self, queue: PartitionQueue, now: float) -> None:
        self._unbind_all([batch for batch in queue.batches if batch.rebindable], queue, now)
        queue.topic.strategy.on_batch_moved(queue)

    def _rescue_from_deleted_partition(self, queue: PartitionQueue, now: float) -> None:
        """The topic was created anew with fewer partitions. What has a key, or was sent to this
        partition, waits for it to come back."""
        # Without ids (before Kafka 2.8) an answer that is merely out of date looks the same.
        certain = queue.topic.topic_id is not None
        homeless = [
            b for b in queue.batches if b.any_partition and (certain or not b.maybe_written)
        ]
        for batch in homeless:
            if batch.attempts:
                queue.unacked.remove(batch)
                batch.reset_attempts()
        if homeless:
            self._unbind_all(homeless, queue, now)

    def _unbind_all(self, batches: list[ProducerBatch], queue: PartitionQueue, now: float) -> None:
        unbound = queue.topic.unbound
        for batch in reversed(batches):
            queue.batches.remove(batch)
            batch.close()
            batch.bind(unbound)
            batch.binding_facts = None
            unbound.batches.appendleft(batch)  # it has waited the longest
        self._ready_queues.schedule(unbound, now)
        self._ready_queues.schedule(queue, now)

    def collapse_to_single_partition(self, topic: TopicBuffer, now: float) -> None:
        """The topic was created anew with one partition, which keeps the order of its records:
        those that wait without partition come before any that are sent from now on."""
        only, waiting = topic.queue(0), topic.unbound.batches
        for queue in [q for q in self._conditions.reserved_queues if q.topic is topic]:
            self._unbind(queue, now)
        if not waiting:
            return
        retried = [batch for batch in only.batches if batch.attempts]
        fresh = [batch for batch in only.batches if not batch.attempts]
        for batch in waiting:
            batch.close()
            self.bind(batch, only, "append", now)
        only.batches = deque([*retried, *waiting, *fresh])
        waiting.clear()
        self._ready_queues.schedule(topic.unbound, now)
        self._ready_queues.schedule(only, now)
