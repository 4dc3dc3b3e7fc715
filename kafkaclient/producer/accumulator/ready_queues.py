"""Where every partition's queue stands: in its leader's line, at a timer, or held up.

A queue is looked at when something happens to it, so that a pass of the sender costs in
proportion to what is ready and not to what exists. Only :meth:`ReadyQueues.schedule` moves a
queue from one :class:`QueueState` to another.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heappop, heappush
from itertools import count, islice
from typing import TYPE_CHECKING, Protocol

from kafkaclient.producer.batches.partition_queue import QueueState
from kafkaclient.producer.timing import SOON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.producer.accumulator.compressor import BatchCompressor
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.sequence import ProducerIdentity
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer

__all__ = ["ReadyQueues", "TransactionGate"]

_NOW = 0.0


class TransactionGate(Protocol):
    """The transaction: it decides which partitions may receive batches that were never sent."""

    def allows(self, queue: PartitionQueue) -> bool:
        """Whether the partition is part of the transaction, so that new batches may be sent."""
        ...

    def request(self, queue: PartitionQueue) -> None:
        """Ask for the partition to be added. The gate schedules the queue when that is done."""
        ...

    def request_one_of(self, topic: TopicBuffer, lanes: Iterable[int]) -> None:
        """Ask for a partition on one of these lanes to be added, for an unbound batch."""
        ...


class ReadyQueues:
    """``one_in_flight`` mutes a partition while a batch of it is out.

    ``wake(when)`` is called when there is work at the time ``when`` (0: now), ``hurried()`` tells
    whether nothing lingers at present.
    """

    __slots__ = (
        "_compressor",
        "_identity",
        "_no_linger",
        "_one_in_flight",
        "_order",
        "_timers",
        "_wake",
        "blocked",
        "gate",
        "leaderless",
        "ready",
        "unbound",
    )

    def __init__(
        self,
        *,
        one_in_flight: bool,
        identity: ProducerIdentity,
        compressor: BatchCompressor,
        wake: Callable[[float], None],
        hurried: Callable[[], bool],
    ) -> None:
        self.ready: dict[int, deque[PartitionQueue]] = {}
        """Per lane: the queues whose first batch may leave, longest ready first."""
        self.unbound: deque[PartitionQueue] = deque()
        """The topics with a ready batch that has no partition yet, longest ready first."""
        self.blocked: Counter[int] = Counter()
        """Per lane: how many queues wait for batches on the wire (or for a producer id)."""
        self.leaderless: dict[PartitionQueue, None] = {}
        self.gate: TransactionGate | None = None
        self._one_in_flight = one_in_flight
        self._identity = identity
        self._compressor = compressor
        self._wake = wake
        self._no_linger = hurried
        self._timers: list[tuple[float, int, PartitionQueue]] = []
        self._order = count()

    def schedule(self, queue: PartitionQueue, now: float) -> None:
        """Put the queue where it belongs; call it after anything that may change that."""
        if queue.target_lane != queue.lane and not queue.in_flight:
            self._remove(queue)
            queue.lane = queue.target_lane
        sequence = queue.sequence
        if sequence.start_over and (
            queue.in_flight or not sequence.restart(queue.unacked, self._identity)
        ):
            self._wake(_NOW)  # a producer id may be wanted
        if self._compressor.enabled:
            self._compressor.compress_ahead(queue)
        if queue.state is QueueState.READY and queue.batches and not queue.batches[0].compressing:
            return  # it is looked at again before anything is taken
        # A ready queue leaves its line, too, if its first batch has expired or is being compressed
        # in the background: else the sender would go on asking for a connection for it.
        if queue.state is not QueueState.IDLE:
            self._remove(queue)
        queue.state = place = self._state_of(queue, now)
        if place is QueueState.READY:
            queue.ready_number = next(self._order)
            self._queue_of(queue).append(queue)
            self._wake(_NOW)
        elif place is QueueState.LEADERLESS:
            self.leaderless[queue] = None
            self._wake(_NOW)
        elif place is QueueState.BLOCKED:
            self.blocked[queue.lane] += 1
        elif place in (QueueState.LINGER, QueueState.BACKOFF):
            self._wake(queue.timer)

    def _remove(self, queue: PartitionQueue) -> None:
        if queue.state is QueueState.READY:
            self._queue_of(queue).remove(queue)
        elif queue.state is QueueState.LEADERLESS:
            del self.leaderless[queue]
        elif queue.state is QueueState.BLOCKED:
            self.blocked[queue.lane] -= 1
        queue.state = QueueState.IDLE

    def pop_front(self, queue: PartitionQueue, now: float) -> None:
        """The queue had its turn: take it out of its line, and see where it belongs now."""
        self._remove(queue)
        self.schedule(queue, now)

    def _queue_of(self, queue: PartitionQueue) -> deque[PartitionQueue]:
        return self.unbound if queue.unbound else self.ready.setdefault(queue.lane, deque())

    def lanes_with_work(self) -> set[int]:
        """The lanes that have a batch to send, or could get an unbound one."""
        lanes = {lane for lane, line in self.ready.items() if line}
        for queue in self.unbound:
            lanes.update(queue.topic.fair_share.lanes)
        return lanes

    @property
    def has_no_reachable_leader(self) -> bool:
        """Whether the only ready batches are unbound, and no partition of their topics has a
        leader."""
        return bool(self.unbound) and not (
            any(queue.topic.fair_share.lanes for queue in self.unbound) or any(self.ready.values())
        )

    def has_full_head(self, lane: int) -> bool:
        """Whether a full batch is first in the lane's line."""
        line = self.ready.get(lane)
        return line is not None and any(q.batches and q.batches[0].full for q in islice(line, 1))

    def must_take_first(self, lane: int) -> bool:
        """Whether the batch that is first in the lane's line can go nowhere else."""
        line = self.ready.get(lane) or ()
        return any(q.batches and not q.batches[0].rebindable for q in islice(line, 1))

    def set_leader(self, queue: PartitionQueue, leader: int, epoch: int, now: float) -> None:
        """The partition's leader is ``leader`` (-1: none) as of the leader epoch ``epoch``."""
        newer = epoch > queue.leader_epoch
        if leader == queue.leader and not newer:
            return
        self._remove(queue)
        if leader != queue.leader:
            queue.target_lane = leader  # the lane follows when nothing is on the wire
        queue.leader, queue.leader_epoch = leader, epoch
        if newer:
            for batch in queue.batches:
                if not batch.attempts:
                    break  # retries are in front
                batch.retry_at = 0.0  # a new leader is asked at once (KIP-951)
        self.schedule(queue, now)

    def sendable(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """The first batch of a ready queue, or None if the batch must wait after all (backing off,
        being compressed, muted, or not yet part of the transaction)."""
        head = queue.batches[0] if queue.batches else None
        if head is None or head.compressing or head.retry_at > now + SOON:
            return None
        return head if self._may_leave(queue, head) else None

    def accepts_new_batch(self, queue: PartitionQueue) -> bool:
        """Whether a batch that was never sent may be bound to the partition and leave at once."""
        if queue.batches and queue.batches[0].attempts:
            return False  # a retry comes first
        return self._may_send_fresh(queue)

    def run_timers(self, now: float) -> None:
        """Move on the queues whose linger time or back-off is over."""
        timers = self._timers
        while timers and timers[0][0] <= now + SOON:
            when, _, queue = heappop(timers)
            if _is_current(queue, when):
                self.schedule(queue, now)

    def next_timer(self) -> float | None:
        """When :meth:`run_timers` has work next."""
        timers = self._timers
        while timers and not _is_current(timers[0][2], timers[0][0]):
            heappop(timers)
        return timers[0][0] if timers else None

    def _state_of(self, queue: PartitionQueue, now: float) -> QueueState:
        head = queue.batches[0] if queue.batches else None
        if head is None:
            return QueueState.IDLE
        if not queue.unbound:
            if queue.leader < 0:
                return QueueState.LEADERLESS
            if not self._may_leave(queue, head):
                return QueueState.BLOCKED
        place, due = QueueState.READY, now
        if head.retry_at > now:
            place, due = QueueState.BACKOFF, head.retry_at
        elif not (head.attempts or head.full or len(queue.batches) > 1 or self._no_linger()):
            place, due = QueueState.LINGER, head.ready_at
        if due <= now + SOON:
            aside = self._compressor.enabled and self._compressor.start_if_large(head)
            return QueueState.SEALING if aside else QueueState.READY
        queue.timer = due
        heappush(self._timers, (due, next(self._order), queue))
        return place

    def _may_leave(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        if queue.in_flight and queue.lane != queue.target_lane:
            return False  # it changes lanes with nothing on the wire
        if head.attempts:
            # Retries go one at a time, oldest first: that keeps the order, however many batches
            # were in flight. Before the sequence restarts (a new epoch), only a batch that may
            # have been written is sent again: the broker's answer tells whether it was.
            return queue.unacked[0] is head and (
                head.maybe_written or not queue.sequence.start_over
            )
        if self.gate is not None:
            self.gate.request(queue)
        return self._may_send_fresh(queue)

    def _may_send_fresh(self, queue: PartitionQueue) -> bool:
        if queue.in_flight and (self._one_in_flight or queue.lane != queue.target_lane):
            return False
        if self.gate is not None and not self.gate.allows(queue):
            return False
        return not self._identity.enabled or queue.sequence.may_stamp(queue.unacked, self._identity)


def _is_current(queue: PartitionQueue, when: float) -> bool:
    """Whether a timer still means something: later ones are set without taking it back."""
    return queue.timer == when and queue.state in (QueueState.LINGER, QueueState.BACKOFF)
