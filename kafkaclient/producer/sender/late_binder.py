"""Which batches make the next request of each available lane, and which partition an unbound batch
gets: late binding gives it to a broker that can take it."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    rule and its consequences.
    """

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._ready_queues = accumulator.ready_queues

    def drain(self, survey: BrokerSurvey, max_bytes: int, now: float) -> Requests:
        """The next request of each available lane: at most one batch per partition, together at
        most ``max_bytes``, except for a first batch that is larger alone.

        The batches are sealed, stamped and count as in flight.
        """
        queues: list[PartitionQueue] = []
        if self._accumulator.identity.valid:  # else an unbound batch cannot be stamped
            queues += self._ready_queues.unbound
        for lane in survey.available:
            queues += self._ready_queues.ready.get(lane, ())
        queues.sort(key=_ready_number)
        filler = _RequestFiller(self._accumulator, survey, max_bytes, now)
        for queue in queues:
            if queue.unbound:
                filler.bind_first(queue)
            else:
                filler.take_first(queue)
            if not filler.room:
                break
        return filler.requests

    def rotate(self, now: float) -> None:
        """Queue each batch in its partition whether the leader is available or not: a strict
        rotation by bytes (``adaptive.partitioning.enable=false``)."""
        unbound = self._ready_queues.unbound
        bound = True
        while bound:
            bound = False
            for source in tuple(unbound):  # one batch of each topic, so that no topic starves
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
                self._ready_queues.schedule(target, now)
                bound = True
        self._ready_queues.pop_front(source, now)
        return bound


class _RequestFiller:
    """Fills the requests of one pass."""

    def __init__(
        self, accumulator: RecordAccumulator, survey: BrokerSurvey, max_bytes: int, now: float
    ) -> None:
        self.requests: Requests = {}
        self.room = dict.fromkeys(survey.available, max_bytes)
        """Bytes left in the requests that are not full yet."""
        self._accumulator = accumulator
        self._ready_queues = accumulator.ready_queues
        self._survey = survey
        self._now = now
        self._unsaturated = survey.available.keys() - survey.saturated
        """Available lanes with room in their in-flight window."""
        self._must_send = set(filter(self._ready_queues.must_take_first, survey.saturated))
        """Available lanes with a full window whose first ready batch is bound to that broker. A
        lane leaves this set when that batch has had its turn."""
        self._taken: set[PartitionQueue] = set()
        """The queues with a batch in a request."""

    def take_first(self, queue: PartitionQueue) -> None:
        """The turn of a partition's queue: its first batch joins the request of its lane."""
        lane = queue.lane
        if lane not in self.room or queue in self._taken:
            return  # the queue keeps its turn
        self._must_send.discard(lane)
        head = self._ready_queues.sendable(queue, self._now)
        if head is not None and self._accumulator.is_sealed(head, self._now):
            if not self._fits(head, lane):
                return
            queue.batches.popleft()
            self._add(head, queue)
        self._ready_queues.pop_front(queue, self._now)

    def bind_first(self, source: PartitionQueue) -> None:
        """The turn of a topic's unbound batches: the first one gets the partition that is furthest
        behind its share of bytes, among those whose request has room."""
        head = source.batches[0] if source.batches else None
        if head is not None:
            target = self._target_for(source.topic, head)
            if target is None:
                return  # the queue keeps its turn
            if source.topic.strategy.should_reserve(target, head):
                source.batches.popleft()
                self._accumulator.binding.reserve(head, target, self._now)
            elif self._accumulator.is_sealed(head, self._now):
                source.batches.popleft()
                self._accumulator.binding.bind(head, target, "late", self._now)
                self._add(head, target)
        self._ready_queues.pop_front(source, self._now)

    def _target_for(self, topic: TopicBuffer, batch: ProducerBatch) -> PartitionQueue | None:
        survey, fair_share, gate = self._survey, topic.fair_share, self._ready_queues.gate
        # While any broker of the topic is healthy, busy or not, the brokers of last resort wait.
        healthy = survey.liveness_pending or not survey.healthy.isdisjoint(fair_share.lanes)
        allowed = survey.healthy if healthy else survey.overdue
        reserved = topic.strategy.reserved_queue
        kept_free = None if reserved is None else reserved.lane
        # A lane with a full window takes an unbound batch only if a bound batch that became ready
        # later will use the same request. Without this, full keyed batches would starve it.
        for candidates in (self._unsaturated, self._must_send):
            usable = [
                lane
                for lane in tuple(self.room)
                if lane in candidates and lane in allowed and lane != kept_free
                if lane not in self.requests or self._fits(batch, lane)
            ]
            if not usable:
                continue
            if gate is not None:
                gate.request_one_of(topic, usable)
            partition = fair_share.pick(usable, partial(self._is_open, topic))
            if partition is not None:
                return topic.queue(partition)
        return None

    def _is_open(self, topic: TopicBuffer, partition: int) -> bool:
        """Whether an unbound batch can be bound to the partition and leave at once."""
        queue = topic.queues.get(partition)  # looking at a partition makes no queue
        if queue is None:
            return self._ready_queues.gate is None
        return queue not in self._taken and self._ready_queues.accepts_new_batch(queue)

    def _fits(self, batch: ProducerBatch, lane: int) -> bool:
        """Whether the lane's request has room for the batch. A request without room takes no later
        batch either: older batches go first."""
        if lane in self.requests and self.room[lane] < batch.size:
            del self.room[lane]
            return False
        return True

    def _add(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        self._accumulator.begin_flight(queue, batch)
        self.requests.setdefault(queue.lane, []).append(batch)
        self.room[queue.lane] -= batch.size
        self._taken.add(queue)
