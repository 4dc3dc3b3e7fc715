"""Which batches make the next request of each available lane, and which partition an unbound batch
gets: late binding gives it to a broker that can take it."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkaclient.producer.accumulator.binding import BatchBinding
    from kafkaclient.producer.accumulator.buffer_pool import BufferPool
    from kafkaclient.producer.accumulator.compressor import BatchCompressor
    from kafkaclient.producer.accumulator.incomplete import IncompleteBatches
    from kafkaclient.producer.accumulator.ready_queues import ReadyQueues
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.idempotence import ProducerIdentity
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.sender.broker_lanes import BrokerSurvey

Requests = dict[int, list["ProducerBatch"]]
"""The batches of the next request in each lane."""

_ALIKE_RATIO = 1.5  # brokers that answer within this factor, and this many seconds more, are alike
_ALIKE_S = 0.002

_ready_number = attrgetter("ready_number")


class BatchDrainer:
    """Fills requests from the ready queues (Java: ``RecordAccumulator.drain``).

    Queues take turns: the queue that has been ready for the longest goes first, whether its
    batches have a partition (key, explicit partition) or not. docs/concepts/partition-choice.md
    states the rule and what follows from it.
    """

    def __init__(
        self,
        ready_queues: ReadyQueues,
        binding: BatchBinding,
        compressor: BatchCompressor,
        incomplete: IncompleteBatches,
        identity: ProducerIdentity,
        buffer_pool: BufferPool,
    ) -> None:
        self.ready_queues = ready_queues
        self.buffer_pool = buffer_pool
        self.binding = binding
        self.identity = identity
        self._compressor = compressor
        self._incomplete = incomplete

    def drain(self, survey: BrokerSurvey, max_bytes: int, now: float) -> Requests:
        """The next request of each available lane: at most one batch per partition, together at
        most ``max_bytes``, except for a first batch that is larger alone.

        The batches are sealed, stamped and count as in flight.
        """
        ready = self.ready_queues
        # Without a producer id no batch can be stamped.
        turns = list(ready.unbound) if self.identity.valid else []
        for lane in survey.available:
            turns += ready.ready.get(lane, ())
        if len(turns) > 1:
            turns.sort(key=_ready_number)
        drain_pass = _DrainPass(self, survey, max_bytes, now)
        for queue in turns:
            if queue.unbound:
                drain_pass.bind_first(queue)
            else:
                drain_pass.take_first(queue)
            if not drain_pass.room:
                break
        return drain_pass.requests

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
            self._incomplete.fail_and_free(batch, error, now)
        return batch.sealed


class _DrainPass:
    """Fills the requests of one pass."""

    def __init__(
        self, drainer: BatchDrainer, survey: BrokerSurvey, max_bytes: int, now: float
    ) -> None:
        self.requests: Requests = {}
        self._drainer = drainer
        self._ready_queues = drainer.ready_queues
        self._survey = survey
        self._now = now
        self.room = dict.fromkeys(survey.available, max_bytes)
        """By lane: bytes left in the requests that are not full yet."""
        self._unsaturated = survey.available.keys() - survey.saturated
        """Available lanes with room in their in-flight window."""
        self._must_send = {
            lane for lane in survey.saturated if self._ready_queues.must_take_first(lane)
        }
        """Available lanes with a full window whose first ready batch is bound to that broker. A
        lane leaves this set when that batch has had its turn."""
        self._taken: set[PartitionQueue] = set()
        self._crowding = drainer.buffer_pool.crowding_broker()

    def take_first(self, queue: PartitionQueue) -> None:
        """The turn of a partition's queue: its first batch goes into the request of its lane."""
        lane, now = queue.lane, self._now
        if lane not in self.room or queue in self._taken:
            return  # the queue keeps its turn
        self._must_send.discard(lane)
        head = self._ready_queues.sendable(queue, now)
        if head is not None and (head.sealed or self._drainer.seal(head, now)):
            if not self._fits(head, lane):
                return
            self._add(head, queue)
        self._ready_queues.schedule(queue, now, had_turn=True)

    def bind_first(self, source: PartitionQueue) -> None:
        """The turn of a topic's unbound batches: the first one gets the partition that is furthest
        behind its share of bytes, of those that a request has room for."""
        if source.batches:
            head, drainer, now = source.batches[0], self._drainer, self._now
            target = self._target_for(source.topic, head)
            if target is None:
                return  # the queue keeps its turn
            if source.topic.strategy.should_reserve(target, head):
                drainer.binding.reserve(source.take_unbound(), target, now)
            elif head.sealed or drainer.seal(head, now):
                drainer.binding.bind(source.take_unbound(), target, "late", now)
                self._add(head, target)
        self._ready_queues.schedule(source, self._now, had_turn=True)

    def _target_for(self, topic: TopicBuffer, batch: ProducerBatch) -> PartitionQueue | None:
        survey, fair_share, gate = self._survey, topic.fair_share, self._ready_queues.gate
        # As long as one broker of the topic is not excluded, even a busy one, excluded brokers get
        # nothing.
        any_eligible = survey.liveness_pending or not survey.eligible.isdisjoint(fair_share.lanes)
        allowed = survey.eligible if any_eligible else survey.last_resort
        if self._crowding in allowed:  # a stall shows here before any request is late
            others = {lane for lane in allowed if lane != self._crowding}
            if not others.isdisjoint(fair_share.lanes):
                allowed = others
        reserved = topic.strategy.reserved_queue
        kept_free = None if reserved is None else reserved.lane
        # A lane with a full window takes an unbound batch only if a bound batch that became ready
        # later will use the same request. Without this, full keyed batches would always
        # be first, and the unbound batch would never leave.
        for candidates in (self._unsaturated, self._must_send):
            usable = []
            for lane in tuple(self.room) if candidates else ():
                usual = lane in candidates and lane in allowed and lane != kept_free
                if usual and (lane not in self.requests or self._fits(batch, lane)):
                    usable.append(lane)
            if not usable:
                continue
            if gate is not None:
                gate.request_one_of(topic, usable)
            is_open, soonest = partial(self._is_open, topic), self._soonest(topic, usable)
            partition = fair_share.pick(soonest, is_open)
            if partition is None and len(soonest) < len(usable):
                partition = fair_share.pick(usable, is_open)
            if partition is not None:
                return topic.queue(partition)
        return None

    def _soonest(self, topic: TopicBuffer, lanes: list[int]) -> list[int]:
        """The lanes whose brokers answer about as soon as the one that answers first."""
        expected, leading = self._survey.expected_latency, topic.fair_share.lanes
        if len(lanes) == 1 or not expected:
            return lanes
        latencies = {lane: expected.get(lane, 0.0) for lane in lanes if lane in leading}
        limit = _ALIKE_RATIO * min(latencies.values(), default=0.0) + _ALIKE_S
        return [lane for lane, latency in latencies.items() if latency <= limit]

    def _is_open(self, topic: TopicBuffer, partition: int) -> bool:
        queue = topic.queues.get(partition)  # looking at a partition makes no queue
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
        queue.begin_flight(batch, self._drainer.identity)
        self.requests.setdefault(queue.lane, []).append(batch)
        self.room[queue.lane] -= batch.sealed_size
        self._taken.add(queue)
