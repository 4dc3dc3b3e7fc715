"""Which batches make the next request of each free lane, and which partition a batch without one
gets: late binding gives it to a broker that can take it."""

from __future__ import annotations

from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.producer.accumulator.binding import BatchBinding
    from kafkaclient.producer.accumulator.compressor import BatchCompressor
    from kafkaclient.producer.accumulator.incomplete import IncompleteBatches
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.sequence import ProducerIdentity
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.sender.broker_lanes import BrokerSurvey

__all__ = ["LateBinder", "Requests"]

Requests = dict[int, list["ProducerBatch"]]
"""The batches of the next request in each lane."""

_ready_number = attrgetter("ready_number")


class LateBinder:
    """Fills requests from the ready queues (Java: ``RecordAccumulator.drain``).

    Queues take turns: the queue that has been ready for the longest goes first, whether its
    batches have a partition (key, explicit partition) or not. docs/partition-choice.md states the
    rule and what follows from it.
    """

    def __init__(
        self,
        ready_queues: ReadyQueues,
        binding: BatchBinding,
        compressor: BatchCompressor,
        incomplete: IncompleteBatches,
        identity: ProducerIdentity,
    ) -> None:
        self.ready_queues = ready_queues
        self.binding = binding
        self.identity = identity
        self._compressor = compressor
        self._incomplete = incomplete

    def drain(self, survey: BrokerSurvey, max_bytes: int, now: float) -> Requests:
        """The next request of each free lane: at most one batch per partition, together at most
        ``max_bytes``, except for a first batch that is larger alone.

        The batches are sealed, stamped and count as on the wire.
        """
        ready = self.ready_queues
        late = ready.unbound if self.identity.valid else ()  # else it has no stamp
        bound = [ready.ready.get(lane, ()) for lane in survey.available]
        filling = _Filling(self, survey, max_bytes, now)
        for queue in sorted(chain(late, *bound), key=_ready_number):
            if queue.unbound:
                filling.bind_first(queue)
            else:
                filling.take_first(queue)
            if not filling.room:
                break
        return filling.requests

    def rotate(self, now: float) -> None:
        """Queue each batch in its partition whether the leader is free or not: a strict rotation
        by bytes (``adaptive.partitioning.enable=false``)."""
        unbound = self.ready_queues.unbound
        bound = True
        while bound:
            bound = False
            for source in tuple(unbound):  # one batch of each topic, so that none waits for another
                bound |= self._rotate_first(source, now)

    def _rotate_first(self, source: PartitionQueue, now: float) -> bool:
        """Bind the topic's first batch. False: it cannot be bound yet."""
        bound = False
        if source.batches:
            head, fair_share = source.batches[0], source.topic.fair_share
            partition = fair_share.pick(fair_share.lanes, lambda _: True)
            if partition is None:
                return False
            if head.sealed or self.seal(head, now):
                target = source.topic.queue(partition)
                self.binding.bind(source.take_unbound(), target, "rotation", now)
                fair_share.add(partition, head.sealed_size)
                target.enqueue(head)
                self.ready_queues.schedule(target, now)
                bound = True
        self.ready_queues.schedule(source, now, had_turn=True)
        return bound

    def seal(self, batch: ProducerBatch, now: float) -> bool:
        """Whether the batch is compressed; a small one is now. A batch fails if its codec does."""
        error = self._compressor.compress_now(batch)
        if error is not None:
            self._incomplete.discard(batch, error, now)
        return batch.sealed


class _Filling:
    """The requests of one pass while they are filled."""

    __slots__ = (
        "_binder",
        "_now",
        "_pressed",
        "_ready_queues",
        "_spare",
        "_survey",
        "_taken",
        "requests",
        "room",
    )

    def __init__(
        self, binder: LateBinder, survey: BrokerSurvey, max_bytes: int, now: float
    ) -> None:
        self.requests: Requests = {}
        self._binder = binder
        self._ready_queues = binder.ready_queues
        self._survey = survey
        self._now = now
        self.room = dict.fromkeys(survey.available, max_bytes)
        """By lane: bytes left in the requests that are not full yet."""
        self._spare = survey.available.keys() - survey.saturated
        """Free lanes with room in their in-flight window."""
        self._pressed = set(filter(self._ready_queues.must_take_first, survey.saturated))
        """Free lanes with a full window whose first ready batch is bound to that broker. A lane
        leaves this set when that batch has had its turn."""
        self._taken: set[PartitionQueue] = set()

    def take_first(self, queue: PartitionQueue) -> None:
        """The turn of a partition's queue: its first batch goes into the request of its lane."""
        lane, now = queue.lane, self._now
        if lane not in self.room or queue in self._taken:
            return  # it keeps its turn
        self._pressed.discard(lane)
        head = self._ready_queues.sendable(queue, now)
        if head is not None and (head.sealed or self._binder.seal(head, now)):
            if not self._fits(head, lane):
                return
            self._add(head, queue)
        self._ready_queues.schedule(queue, now, had_turn=True)

    def bind_first(self, source: PartitionQueue) -> None:
        """The turn of a topic's unbound batches: the first one gets the partition that is furthest
        behind its share of bytes, of those that a request has room for."""
        if source.batches:
            head, binder, now = source.batches[0], self._binder, self._now
            target = self._target_for(source.topic, head)
            if target is None:
                return  # it keeps its turn
            if source.topic.strategy.should_reserve(target, head):
                binder.binding.reserve(source.take_unbound(), target, now)
            elif head.sealed or binder.seal(head, now):
                binder.binding.bind(source.take_unbound(), target, "late", now)
                self._add(head, target)
        self._ready_queues.schedule(source, self._now, had_turn=True)

    def _target_for(self, topic: TopicBuffer, batch: ProducerBatch) -> PartitionQueue | None:
        allowed, gate = _allowed(topic, self._survey), self._ready_queues.gate
        # A lane with a full window takes an unbound batch only if a bound batch that became ready
        # later will use the same request. Without this, full keyed batches would starve it.
        for lanes in (self._spare, self._pressed):
            usable = [n for n in self.room if n in lanes and n in allowed]
            if self.requests:
                usable = [n for n in usable if self._fits(batch, n)]
            if not usable:
                continue
            if gate is not None:
                gate.request_one_of(topic, usable)
            partition = topic.fair_share.pick(usable, partial(self._is_open, topic))
            if partition is not None:
                return topic.queue(partition)
        return None

    def _is_open(self, topic: TopicBuffer, partition: int) -> bool:
        queue = topic.queues.get(partition)  # one that is only looked at is not made
        if queue is None:
            return self._ready_queues.gate is None
        return queue not in self._taken and self._ready_queues.accepts_new_batch(queue)

    def _fits(self, batch: ProducerBatch, lane: int) -> bool:
        """Whether the lane's request has room for the batch. If not, the request takes no later
        batch either: older batches go first."""
        if lane in self.requests and self.room[lane] < batch.size:
            del self.room[lane]
            return False
        return True

    def _add(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        queue.begin_flight(batch, self._binder.identity)
        self.requests.setdefault(queue.lane, []).append(batch)
        self.room[queue.lane] -= batch.sealed_size
        self._taken.add(queue)


def _allowed(topic: TopicBuffer, survey: BrokerSurvey) -> Collection[int]:
    """The lanes that may take an unbound batch of the topic now, if they are free."""
    # While any broker of the topic is healthy, busy or not, the others get nothing.
    sound = not survey.healthy.isdisjoint(topic.fair_share.lanes)
    allowed = survey.healthy if sound or survey.liveness_pending else survey.overdue
    filling = topic.strategy.reserved_queue
    if filling is None:
        return allowed
    return [lane for lane in allowed if lane != filling.lane]
