"""Which batches make the next request of each free lane, and which partition a batch without one
gets: late binding gives it to a broker that can take it."""

from __future__ import annotations

from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.sender.broker_lanes import BrokerSurvey

__all__ = ["LateBinder", "Requests"]

Requests = dict[int, list["ProducerBatch"]]
"""The batches of the next request in each lane."""

_ready_number = attrgetter("ready_number")


class LateBinder:
    """Fills requests from the accumulator's ready queues (Java: ``RecordAccumulator.drain``).

    Queues take turns: the queue that has been ready for the longest goes first, whether its
    batches have a partition (key, explicit partition) or not. docs/partition-choice.md states the
    rule and what follows from it.
    """

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._lines = accumulator.ready_queues

    def drain(self, survey: BrokerSurvey, max_bytes: int, now: float) -> Requests:
        """The next request of each free lane: at most one batch per partition, together at most
        ``max_bytes``, except for a first batch that is larger alone.

        The batches are sealed, stamped and count as on the wire.
        """
        lines = self._lines
        late = lines.unbound if self._accumulator.identity.valid else ()  # else it has no stamp
        bound = [lines.ready.get(lane, ()) for lane in survey.available]
        filling = _Filling(self._accumulator, survey, max_bytes, now)
        for queue in sorted(chain(late, *bound), key=_ready_number):
            if queue.unbound:
                filling.bind_first(queue)
            else:
                filling.take_first(queue)
            if not filling.open:
                break
        return filling.requests

    def rotate(self, now: float) -> None:
        """Queue each batch in its partition whether the leader is free or not: a strict rotation
        by bytes (``adaptive.partitioning.enable=false``)."""
        unbound = self._lines.unbound
        bound = True
        while bound:
            bound = False
            for source in tuple(unbound):  # one batch of each topic, so that none waits for another
                bound |= self._rotate_first(source, now)

    def _rotate_first(self, source: PartitionQueue, now: float) -> bool:
        """Bind the topic's first batch; False: it cannot be bound yet."""
        fair_share, head = source.topic.fair_share, source.batches[0] if source.batches else None
        bound = False
        if head is not None:
            partition = fair_share.pick(fair_share.lanes, lambda _: True)
            if partition is None:
                return False
            if self._accumulator.is_sealed(head, now):
                source.batches.popleft()
                target = source.topic.queue(partition)
                self._accumulator.binding.bind(head, target, "rotation", now)
                fair_share.add(partition, head.size)
                target.batches.append(head)
                self._lines.schedule(target, now)
                bound = True
        self._lines.pop_front(source, now)
        return bound


class _Filling:
    """The requests of one pass while they are filled."""

    def __init__(
        self, accumulator: RecordAccumulator, survey: BrokerSurvey, max_bytes: int, now: float
    ) -> None:
        self.requests: Requests = {}
        self._accumulator = accumulator
        self._lines = accumulator.ready_queues
        self._survey = survey
        self._now = now
        self._room = dict.fromkeys(survey.available, max_bytes)
        """Bytes left in the requests that are not full yet."""
        self._spare = survey.available.keys() - survey.saturated
        """Free lanes with room in their in-flight window."""
        self._pressed = {lane for lane in survey.saturated if self._lines.must_take_first(lane)}
        """Free lanes with a full window whose first ready batch is bound to that broker. A lane
        leaves this set when that batch has had its turn."""
        self._taken: set[PartitionQueue] = set()

    @property
    def open(self) -> bool:
        """Whether any request has room left."""
        return bool(self._room)

    def take_first(self, queue: PartitionQueue) -> None:
        """The turn of a partition's queue: its first batch goes into the request of its lane."""
        lane = queue.lane
        if lane not in self._room or queue in self._taken:
            return  # it keeps its turn
        self._pressed.discard(lane)
        head = self._lines.sendable(queue, self._now)
        if head is not None and self._accumulator.is_sealed(head, self._now):
            if not self._fits(head, lane):
                return
            queue.batches.popleft()
            self._add(head, queue)
        self._lines.pop_front(queue, self._now)

    def bind_first(self, source: PartitionQueue) -> None:
        """The turn of a topic's batches without partition: the first one gets the partition that
        is furthest behind its share of bytes, of those that a request has room for."""
        head = source.batches[0] if source.batches else None
        if head is not None:
            target = self._target_for(source.topic, head)
            if target is None:
                return  # it keeps its turn
            if source.topic.strategy.should_reserve(target, head):
                source.batches.popleft()
                self._accumulator.binding.reserve(head, target, self._now)
            elif self._accumulator.is_sealed(head, self._now):
                source.batches.popleft()
                self._accumulator.binding.bind(head, target, "late", self._now)
                self._add(head, target)
        self._lines.pop_front(source, self._now)

    def _target_for(self, topic: TopicBuffer, batch: ProducerBatch) -> PartitionQueue | None:
        allowed = _allowed(topic, self._survey)
        # A lane with a full window takes an unbound batch only if a bound batch that became ready
        # later will use the same request. Without this, full keyed batches would starve it.
        for lanes in (self._spare, self._pressed):
            usable = [n for n in self._room if n in lanes and n in allowed]
            usable = [n for n in usable if self._fits(batch, n)]
            if not usable:
                continue
            if self._lines.gate is not None:
                self._lines.gate.request_one_of(topic, usable)
            partition = topic.fair_share.pick(usable, partial(self._is_open, topic))
            if partition is not None:
                return topic.queue(partition)
        return None

    def _is_open(self, topic: TopicBuffer, partition: int) -> bool:
        queue = topic.queues.get(partition)  # one that is only looked at is not made
        if queue is None:
            return self._lines.gate is None
        return queue not in self._taken and self._lines.accepts_new_batch(queue)

    def _fits(self, batch: ProducerBatch, lane: int) -> bool:
        """Whether the lane's request has room for the batch. One that has not takes no later batch
        either: what is older goes first."""
        if lane in self.requests and self._room[lane] < batch.size:
            del self._room[lane]
            return False
        return True

    def _add(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        self._accumulator.begin_flight(queue, batch)
        self.requests.setdefault(queue.lane, []).append(batch)
        self._room[queue.lane] -= batch.size
        self._taken.add(queue)


def _allowed(topic: TopicBuffer, survey: BrokerSurvey) -> Collection[int]:
    """The lanes that a batch of the topic may go by now, if they are free."""
    # While any broker of the topic is sound, busy or not, the others get nothing.
    sound = not survey.healthy.isdisjoint(topic.fair_share.lanes)
    allowed = survey.healthy if sound or survey.liveness_pending else survey.overdue
    filling = topic.strategy.reserved_queue
    if filling is None:
        return allowed
    return [lane for lane in allowed if lane != filling.lane]
