"""Which partition queues are ready for their leader, wait for a timer, or are blocked.

A queue is looked at when something happens to it, so that the cost of a sender's pass grows with
the number of ready queues, not of all queues. Only :meth:`ReadyQueues.schedule` moves a queue from
one :class:`QueueState` to another.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Protocol

from kafkaclient.producer.batches.partition_queue import QueueState
from kafkaclient.producer.settings import SOON

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kafkaclient.producer.accumulator.buffer_pool import BufferPool
    from kafkaclient.producer.accumulator.compressor import BatchCompressor
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.idempotence import ProducerIdentity
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.settings import AccumulatorSettings
    from kafkaclient.producer.wakeup import Wakeup

# A member looked up in its Enum costs a Python call before 3.12.
_IDLE, _READY = QueueState.IDLE, QueueState.READY
_LINGER, _BACKOFF = QueueState.LINGER, QueueState.BACKOFF
_BLOCKED, _LEADERLESS = QueueState.BLOCKED, QueueState.LEADERLESS


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
    """Knows what each partition queue waits for. With ``one_in_flight`` a partition sends nothing
    while one of its batches is in flight.

    ``wakeup`` is told when there is work.
    """

    __slots__ = (
        "_compressor",
        "_identity",
        "_linger",
        "_one_in_flight",
        "_order",
        "_timers",
        "_wakeup",
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
        linger: Linger,
        wakeup: Wakeup,
    ) -> None:
        self.ready: defaultdict[int, deque[PartitionQueue]] = defaultdict(deque)
        """By lane: the queues whose first batch may be sent, longest ready first."""
        self.unbound: deque[PartitionQueue] = deque()
        """The queues of ready batches that have no partition yet, longest ready first."""
        self.blocked: Counter[int] = Counter()
        """By lane: how many queues wait for earlier batches, a producer id, or their partition's
        place in the transaction."""
        self.leaderless: dict[PartitionQueue, None] = {}
        self.gate: TransactionGate | None = None
        """Assigned by the TransactionManager: only transactions v1 need it, and the version is
        known after the first request to a broker."""
        self._one_in_flight = one_in_flight
        self._identity = identity
        self._compressor = compressor
        self._wakeup = wakeup
        self._linger = linger
        self._timers: list[tuple[float, int, PartitionQueue]] = []
        self._order = count()

    def schedule(self, queue: PartitionQueue, now: float, had_turn: bool = False) -> None:
        """Give the queue the state that is due. Call it after anything that may change that.
        ``had_turn``: a ready queue goes behind the others that are ready."""
        if queue.target_lane != queue.lane and not queue.in_flight:
            self._detach(queue)
            queue.change_lane()
        if queue.sequence.restart_due and not queue.restart_sequence(self._identity):
            self._wakeup.wake_at()  # a producer id may be wanted
        if self._compressor.enabled:
            self._compressor.compress_ahead(queue)
        batches, state = queue.batches, queue.state
        if state is not _IDLE:
            if state is _READY and not had_turn and batches and not batches[0].compressing:
                return  # Stays ready: `sendable` checks its batch before it is sent.
            # But a queue whose first batch has expired or is being compressed leaves its lane.
            # Otherwise the sender would open connections for nothing.
            self._detach(queue)
        if batches:
            self._enter_state(queue, batches[0], now)

    def _enter_state(self, queue: PartitionQueue, head: ProducerBatch, now: float) -> None:
        """Put an idle queue where its first batch ``head`` belongs."""
        if not queue.unbound:
            if queue.leader < 0:
                queue.enter(_LEADERLESS)
                self.leaderless[queue] = None
                self._wakeup.wake_at()
                return
            if not self._may_leave(queue, head):
                queue.enter(_BLOCKED)
                self.blocked[queue.lane] += 1
                return
        soon = now + SOON
        if head.retry_at > soon:
            self._wait(queue, _BACKOFF, head.retry_at)
        elif head.lingers_until > soon and self._linger.lingers(queue, head):
            self._wait(queue, _LINGER, head.lingers_until)
        elif self._compressor.enabled and self._compressor.start_if_large(head):
            queue.enter(QueueState.SEALING)
        else:
            queue.become_ready(next(self._order))
            ready = self.unbound if queue.unbound else self.ready[queue.lane]
            ready.append(queue)
            self._wakeup.wake_at()

    def _wait(self, queue: PartitionQueue, state: QueueState, until: float) -> None:
        queue.wait_until(until, state)
        heappush(self._timers, (until, next(self._order), queue))
        self._wakeup.wake_at(until)

    def _detach(self, queue: PartitionQueue) -> None:
        """Make the queue idle."""
        state = queue.state
        if state is _READY:
            ready = self.unbound if queue.unbound else self.ready[queue.lane]
            ready.remove(queue)
        elif state is _LEADERLESS:
            del self.leaderless[queue]
        elif state is _BLOCKED:
            self.blocked[queue.lane] -= 1
        queue.enter(_IDLE)

    def lanes_with_work(self) -> set[int]:
        """The lanes that have a batch to send, or could get an unbound batch."""
        lanes = set[int]()
        for lane, queues in self.ready.items():
            if queues:
                lanes.add(lane)
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

    @property
    def has_large_unbound(self) -> bool:
        """Whether a topic's first unbound batch is large."""
        for queue in self.unbound:  # noqa: SIM110 - any() would make a generator in each pass
            if queue.batches and queue.batches[0].large:
                return True
        return False

    def has_full_head(self, lane: int) -> bool:
        """Whether the lane's longest ready batch is full."""
        head = self._head(lane)
        return head is not None and head.full

    def must_take_first(self, lane: int) -> bool:
        """Whether the lane's longest ready batch can go nowhere else."""
        head = self._head(lane)
        return head is not None and not head.rebindable

    def _head(self, lane: int) -> ProducerBatch | None:
        queues = self.ready.get(lane)
        return queues[0].batches[0] if queues and queues[0].batches else None

    def set_leader(self, queue: PartitionQueue, leader: int, epoch: int, now: float) -> None:
        """The partition's leader is ``leader`` (-1: none) as of the leader epoch ``epoch``."""
        if leader == queue.leader and epoch <= queue.leader_epoch:
            return
        self._detach(queue)
        queue.set_leader(leader, epoch)
        self.schedule(queue, now)

    def sendable(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """The first batch of a ready queue. None: the batch must wait after all (backing off,
        being compressed, muted, or not yet part of the transaction)."""
        head = queue.batches[0] if queue.batches else None
        if head is None or head.compressing or head.retry_at > now + SOON:
            return None
        return head if self._may_leave(queue, head) else None

    def accepts_new_batch(self, queue: PartitionQueue) -> bool:
        """Whether a batch that was never sent may be bound to the partition and sent at once."""
        if queue.batches and queue.batches[0].attempts:
            return False  # a retry comes first
        if queue.in_flight and (self._one_in_flight or queue.lane != queue.target_lane):
            return False
        if self.gate is not None and not self.gate.allows(queue):
            return False
        return not self._identity.enabled or queue.sequence.may_stamp(queue.unacked, self._identity)

    def run_timers(self, now: float) -> None:
        """Schedule the queues whose linger time or back-off is over."""
        timers = self._timers
        while timers and timers[0][0] <= now + SOON:
            when, _, queue = heappop(timers)
            if _is_current(queue, when):
                self.schedule(queue, now)

    def next_timer(self) -> float | None:
        """When :meth:`run_timers` has work next. None: never, as things are."""
        timers = self._timers
        while timers and not _is_current(timers[0][2], timers[0][0]):
            heappop(timers)
        return timers[0][0] if timers else None

    def _may_leave(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Whether the first batch may be sent now, after the partition's other batches."""
        if not head.attempts:
            if self.gate is not None and not (queue.in_flight and queue.lane != queue.target_lane):
                self.gate.request(queue)
            return self.accepts_new_batch(queue)
        if queue.in_flight and queue.lane != queue.target_lane:
            return False  # a partition changes its lane with nothing on the wire
        # Retries go one at a time, oldest first: that keeps the order, however many batches were
        # in flight. Before the sequence restarts (a new epoch), only a batch that may have been
        # written is sent again: the broker's answer shows whether it was.
        return queue.is_oldest(head) and (head.maybe_written or not queue.sequence.restart_due)


def _is_current(queue: PartitionQueue, when: float) -> bool:
    """Whether the timer is the queue's latest. Earlier ones are not taken out of the heap."""
    return queue.timer == when and (queue.state is _LINGER or queue.state is _BACKOFF)


class Linger:
    """Decides how long a batch waits for more records (``linger.ms``).

    No batch waits during a flush, while callers wait for buffer memory, or after :meth:`close`.
    ``flushes``: the pending flushes.
    """

    __slots__ = ("_buffer_pool", "_flushes", "_never_lingers", "_seconds")

    def __init__(
        self, settings: AccumulatorSettings, buffer_pool: BufferPool, flushes: Collection[object]
    ) -> None:
        self._seconds = settings.linger
        # batch.size 0 means "do not batch": no batch lingers (KAFKA-14303).
        self._never_lingers = settings.batch_size == 0
        self._buffer_pool = buffer_pool
        self._flushes = flushes

    def until(self, queue: PartitionQueue, now: float, rebindable: bool) -> float:
        """Until when a batch lingers that is opened now. A batch that was opened in a partition and
        may yet go to another (``rebindable``) may linger for longer."""
        seconds = self._seconds
        if rebindable and not queue.unbound:
            seconds = max(seconds, queue.topic.strategy.extra_linger(queue))
        return now + seconds

    def lingers(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Whether ``head``, the queue's first batch, waits for more records while its linger time
        lasts. A retry, a full batch, and a batch with another one behind it do not."""
        return not (
            self._never_lingers
            or self._flushes
            or self._buffer_pool.short
            or queue.share.claims
            or head.attempts
            or len(queue.batches) > 1
            or head.full
        )

    def close(self) -> None:
        """From now on no batch lingers: the producer takes no more records."""
        self._never_lingers = True
