"""The queue of one partition: batches that wait, and batches sent but not acknowledged."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any

from kafkaclient.producer.batches.idempotence import PartitionSequence
from kafkaclient.producer.settings import NO_LANE, UNBOUND
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.idempotence import ProducerIdentity
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer


# --- How much of ``buffer.memory`` holds records for one broker -----------------------------------

ANY_BROKER = -2
"""In the place of a broker's id: for batches that have no partition yet."""


class BufferShare:
    """The bytes of ``buffer.memory`` that batches for one broker hold, and sends that are about to
    append (-1: for partitions without a leader, :data:`ANY_BROKER`: for those without a
    partition)."""

    __slots__ = ("broker", "claims", "held")

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.held = 0
        self.claims: deque[Any] = deque()
        """The sends that wait for bytes of this share (admission/pending_sends.py)."""

    def __repr__(self) -> str:
        return f"<BufferShare of broker {self.broker} held={self.held} claims={len(self.claims)}>"

    @property
    def waits_for(self) -> str:
        """What the batches wait for, for error messages."""
        if self.broker == ANY_BROKER:
            return "any broker that is free"
        return f"broker {self.broker}" if self.broker >= 0 else "a leader of their partition"


class BufferShares:
    """The shares of all brokers that lead partitions with records."""

    __slots__ = ("_by_broker", "moved", "several", "unbound")

    def __init__(self) -> None:
        self.unbound = BufferShare(ANY_BROKER)
        self._by_broker: dict[int, BufferShare] = {}
        self.moved = False
        """Whether a partition has changed its share since the claims were looked at."""
        self.several = False
        """Whether there is more than one broker, so that one could take the others' memory."""

    def __iter__(self) -> Iterator[BufferShare]:
        yield from self._by_broker.values()
        yield self.unbound

    @property
    def fullest(self) -> BufferShare:
        """The share that has the most bytes."""
        return max(self, key=lambda share: share.held)

    def held_for(self, broker: int) -> int:
        """The bytes that batches for the broker hold."""
        share = self._by_broker.get(broker)
        return 0 if share is None else share.held

    def of(self, broker: int) -> BufferShare:
        """The broker's share, made if there is none."""
        share = self._by_broker.get(broker)
        if share is None:
            share = self._by_broker[broker] = BufferShare(broker)
            self.several = len(self._by_broker) > 1
        return share


# --- One partition's queue, and the states that it can be in --------------------------------------


class QueueState(Enum):
    """What a partition's queue waits for. Only :meth:`ReadyQueues.schedule` changes it."""

    IDLE = "nothing is queued"
    LINGER = "the open batch lingers"
    BACKOFF = "the first batch waits before its retry"
    BLOCKED = (
        "the first batch waits for earlier batches, a producer id, or its partition's place in the "
        "transaction"
    )
    SEALING = "the first batch is compressed in the background, or waits for that"
    LEADERLESS = "the partition has no known leader"
    READY = "the first batch waits for a broker that takes another request"


# A member looked up in its Enum costs a Python call before 3.12.
_IDLE, _READY = QueueState.IDLE, QueueState.READY


class PartitionQueue:
    """The batches of one partition, from their binding to their outcome (franz-go: ``recBuf``).

    Each transition of a batch is a method here, which asserts the invariants that it keeps. Only
    methods of this class assign the attributes of a queue.
    """

    __slots__ = (
        "_batches",
        "_unacked",
        "batches",
        "batches_bound",
        "bytes_bound",
        "bytes_sent",
        "in_flight",
        "lane",
        "leader",
        "leader_epoch",
        "partition",
        "ready_number",
        "records_sent",
        "sequence",
        "share",
        "state",
        "target_lane",
        "timer",
        "topic",
        "tp",
        "typical_batch_size",
        "unacked",
        "unbound",
    )

    def __init__(
        self,
        topic: TopicBuffer,
        partition: int,
        *,
        leader: int = -1,
        leader_epoch: int = -1,
        lane: int = NO_LANE,
    ) -> None:
        self.topic = topic
        self.tp = TopicPartition(topic.name, partition)
        self.partition = partition
        self.unbound = partition == UNBOUND
        """Whether this is the queue of the topic's batches that have no partition yet."""
        self._batches: deque[ProducerBatch] = deque()
        self.batches: Sequence[ProducerBatch] = self._batches
        """Waiting to be sent: retries in front, in the order in which they were first sent.
        Read-only."""
        self._unacked: deque[ProducerBatch] = deque()
        self.unacked: Sequence[ProducerBatch] = self._unacked
        """Sent at least once and neither acknowledged nor given up, oldest first. Those not on the
        wire are in ``batches`` as well, for their retry. Read-only."""
        self.in_flight = 0
        """How many of ``unacked`` are on the wire."""
        self.leader = leader
        self.leader_epoch = leader_epoch
        shares = topic.shares
        self.share = shares.unbound if self.unbound else shares.of(leader)
        """What the queue's batches hold of ``buffer.memory``, with others for the same broker."""
        self.lane = lane
        """The lane that the queue is ready for, or has batches on the wire in."""
        self.target_lane = lane
        """The lane that the queue changes to once nothing is on the wire."""
        self.state = _IDLE
        self.timer = 0.0
        """When the latest linger time or back-off ends."""
        self.ready_number = 0
        """Grows with each queue that becomes ready: the queue with the least was ready first."""
        self.sequence = PartitionSequence()
        self.typical_batch_size = 0
        """Bytes before compression of the batch that was sealed last."""
        self.batches_bound = 0
        """Batches and bytes that were sent for the first time, whatever their outcome."""
        self.bytes_bound = 0
        self.bytes_sent = 0
        """Bytes and records that were acknowledged."""
        self.records_sent = 0

    def __repr__(self) -> str:
        return (
            f"<PartitionQueue {self.tp} leader={self.leader} {self.state.name} "
            f"queued={len(self._batches)} unacked={len(self._unacked)} in_flight={self.in_flight}>"
        )

    # --- questions ------------------------------------------------------------------------------

    @property
    def is_deleted(self) -> bool:
        """Whether the topic was deleted and created again without this partition."""
        view = self.topic.view or self.topic.last_view
        return view is not None and self.partition >= view.partition_count

    @property
    def replicas(self) -> tuple[int, ...]:
        """The in-sync replicas, which acknowledge a write with acks=all. Empty: not known."""
        view = self.topic.view
        known = view is not None and self.partition < view.partition_count
        return view.partitions[self.partition].isr if view is not None and known else ()

    @property
    def waits_for(self) -> str:
        """What the queue waits for, for error messages."""
        if self.unbound:
            return "any broker that is free"
        if self.leader >= 0:
            return f"broker {self.leader}"
        if self.is_deleted:
            return "their partition, which the topic no longer has (it was created again)"
        return "a leader of their partition"

    @property
    def all_full(self) -> bool:
        """Whether no queued batch takes records any more (Java: ``allBatchesFull``)."""
        return not self._batches or self._batches[-1].full

    @property
    def queued_bytes(self) -> int:
        return sum([batch.size for batch in self._batches])

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Whether the batch is the oldest unacknowledged one."""
        return self._unacked[0] is batch

    # --- batches that were never sent -----------------------------------------------------------

    def enqueue(self, batch: ProducerBatch) -> None:
        """Queue a batch that was never sent, behind the others."""
        assert batch.queue is self, "a batch is in the queue that it is bound to"
        assert not batch.attempts, "a retry goes back in its order"
        if not batch.closed and self._batches and not self._batches[-1].closed:
            self._batches[-1].close()  # opened by a partitioner that sends records itself
        self._batches.append(batch)

    def take_unbound(self) -> ProducerBatch:
        """Take out the first batch, to bind it to a partition."""
        assert self.unbound, "a bound batch leaves its queue for the wire only"
        return self._batches.popleft()

    def take_all_unbound(self) -> None:
        """Queue all unbound batches of the topic, which were bound to this partition, before the
        batches that were queued here and never sent."""
        unbound = self.topic.unbound._batches
        retries = sum(batch.attempts > 0 for batch in self._batches)
        for batch in reversed(unbound):
            assert batch.queue is self, "a batch is in the queue that it is bound to"
            assert batch.closed, "an open batch follows closed ones"
            self._batches.insert(retries, batch)
        unbound.clear()

    def give_back_unbound(self, batches: Iterable[ProducerBatch]) -> None:
        """These queued batches have no partition any more; they go to the topic's other unbound
        batches, in front, as they have waited the longest."""
        batches = list(batches)
        for batch in reversed(batches):
            self._batches.remove(batch)
            if batch.attempts:
                self._unacked.remove(batch)
            batch.unbind()
            self.topic.unbound._batches.appendleft(batch)

    # --- batches on the wire, and their outcome -------------------------------------------------

    def begin_flight(self, batch: ProducerBatch, identity: ProducerIdentity) -> None:
        """The batch goes on the wire: the queue's first one, or one that was just bound to the
        partition. It is numbered when it is sent for the first time."""
        assert batch.queue is self, "a batch is sent to the partition that it is bound to"
        queued = self._batches
        if queued and queued[0] is batch:
            queued.popleft()
        if batch.attempts:
            assert self._unacked[0] is batch, "only the oldest unacknowledged batch is sent again"
        else:
            assert not (queued and queued[0].attempts), "a retry goes before a new batch"
            if identity.enabled:
                self.sequence.stamp(batch, identity)
            self._unacked.append(batch)
            self.batches_bound += 1
            self.bytes_bound += batch.sealed_size
            self.topic.strategy.on_sent(self, batch)
        batch.begin_flight(self.leader_epoch, self.topic.topic_id)
        self.in_flight += 1

    def complete(self, batch: ProducerBatch) -> None:
        """The batch is acknowledged."""
        self._land(batch)
        self._unacked.remove(batch)
        self.sequence.acknowledged(batch)
        self.records_sent += batch.result.count
        self.bytes_sent += batch.sealed_size
        if self.sequence.unresolved and not self._unacked:
            self.sequence.resolve()

    def requeue(self, batch: ProducerBatch) -> None:
        """Queue the batch for its retry: behind older retries, before every batch that was first
        sent later or never."""
        self._land(batch)
        self._queue_for_retry(batch)

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Queue the parts of a batch for a retry, in its place."""
        self._land(batch)
        at = self._unacked.index(batch)
        del self._unacked[at]
        for part in reversed(parts):
            assert part.queue is self, "a batch is in the queue that it is bound to"
            self._unacked.insert(at, part)
        for part in parts:
            self._queue_for_retry(part)

    def fail(self, batch: ProducerBatch, maybe_written: bool) -> None:
        """The batch has failed, wherever it is."""
        if batch.in_flight:
            self._land(batch)
        else:
            with suppress(ValueError):
                self._batches.remove(batch)
        with suppress(ValueError):
            self._unacked.remove(batch)
        if batch.stamped:
            self.sequence.on_batch_lost(maybe_written=maybe_written)
        if self.sequence.unresolved and not self._unacked:
            self.sequence.resolve()

    def _land(self, batch: ProducerBatch) -> None:
        batch.land()
        self.in_flight -= 1
        assert self.in_flight >= 0, "each batch on the wire is counted once"

    def _queue_for_retry(self, batch: ProducerBatch) -> None:
        # The unacknowledged batches that are not on the wire are queued in front, in order.
        at = 0
        for older in self._unacked:
            if older is batch:
                break
            if not older.in_flight:
                at += 1
        assert not at or self._batches[at - 1].attempts, "retries are in front"
        self._batches.insert(at, batch)

    # --- leader, lane, sequence and state -------------------------------------------------------

    def set_leader(self, leader: int, epoch: int) -> None:
        """The partition's leader is ``leader`` (-1: none) as of the leader epoch ``epoch``."""
        if leader != self.leader:
            self.target_lane = leader
        if epoch > self.leader_epoch:
            for batch in self._batches:
                if not batch.attempts:
                    break  # retries are in front
                batch.retry_at_once()  # a new leader is asked at once (KIP-951)
        self.leader, self.leader_epoch = leader, epoch
        if not self.in_flight:
            self._change_share()

    def set_target_lane(self, lane: int) -> None:
        """Change to this lane once nothing is on the wire."""
        self.target_lane = lane

    def change_lane(self) -> None:
        """Take up the target lane."""
        assert not self.in_flight, "a partition changes its lane with nothing on the wire"
        self.lane = self.target_lane
        self._change_share()

    def _change_share(self) -> None:
        """The batches wait for the present leader: nothing of them is at the former one."""
        shares = self.topic.shares
        if self.share.broker == self.leader or self.unbound:
            return
        self.share = shares.of(self.leader)
        shares.moved = True
        for batch in {*self._batches, *self._unacked}:
            batch.move_charge(self.share)

    def restart_sequence(self, identity: ProducerIdentity) -> bool:
        """Number the unacknowledged batches again, under a raised epoch, if nothing is on the wire.
        Returns whether they were numbered."""
        return not self.in_flight and self.sequence.restart(self._unacked, identity)

    def on_topic_recreated(self) -> None:
        """The topic was deleted and created again: the partition has another log."""
        self.sequence.on_log_recreated()
        for batch in self._unacked:
            batch.retry_at_once()

    def leave_cluster(self) -> None:
        """The partition is one of another cluster now, whose leader is not known yet."""
        assert not self.in_flight, "the connections to the former cluster are closed"
        self.leader_epoch = -1
        self.sequence.leave_cluster(self._unacked)

    def on_sealed(self, raw_size: int) -> None:
        """A batch of the queue was sealed that had ``raw_size`` bytes before compression."""
        self.typical_batch_size = raw_size

    def enter(self, state: QueueState) -> None:
        """The queue is in this state from now on. To be called by :class:`ReadyQueues`, as are the
        next two methods."""
        self.state = state

    def become_ready(self, number: int) -> None:
        """The first batch may be sent."""
        assert self._batches, "a ready queue has a batch"
        self.state = _READY
        self.ready_number = number

    def wait_until(self, timer: float, state: QueueState) -> None:
        """The first batch waits until the time ``timer``."""
        self.state = state
        self.timer = timer
