"""Who waits for what, in which order: the sends of all topics that cannot be appended at once.

A record that cannot be appended at once joins a queue. While the queue is not empty, every later
record for the same place joins it as well, and direct append is closed for it. So records are
appended to batches in the order of the calls.

A place is a partition, or ``UNBOUND`` for records that may go to any partition. So records that
wait for one broker do not hold up those for the others. The place is ``EVERY``, and all later
records of the topic wait, while a bulk call is at work, and for a record whose partition is not
known: the topic's metadata is not there, or the serializer has not finished.

The first sends of the queues that wait for buffer space get it in the order in which they came to
need it, but for those whose broker holds its share of the buffer already.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from kafkaclient.errors import BufferFullError, KafkaError, ProducerClosedError
from kafkaclient.producer.admission.send_queue import (
    PendingSend,
    SendQueue,
    SendState,
    SerializerTask,
    WaitingCall,
)
from kafkaclient.producer.batches.partition_queue import ANY_BROKER, BufferShare
from kafkaclient.producer.batches.record import PendingRecord, Record
from kafkaclient.producer.batches.topic_buffer import EVERY
from kafkaclient.producer.settings import UNBOUND
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.accumulator.buffer_pool import Spending
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer


class PendingSends:
    """The queues of all topics. Times in seconds; ``limit`` is for the serializers of calls."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        *,
        limit: Limit,
        ignore_keys: bool,
        clock: Callable[[], float],
    ) -> None:
        self.buffer_pool = accumulator.buffer_pool
        self.serializers: set[asyncio.Task[Record]] = set()
        """The serializers at work, also those of bulk calls, which :meth:`close` cancels."""
        self._accumulator = accumulator
        self._limit = limit
        self._ignore_keys = ignore_keys
        self._clock = clock
        self._queues: dict[TopicBuffer, dict[int, SendQueue]] = {}
        """By topic and place, the queues that are not empty."""
        self._claimed: dict[BufferShare, None] = {}
        """The shares with claims: sends that wait for buffer space, first come first."""
        self._any_share = BufferShare(ANY_BROKER)
        """For bulk calls, whose next record may be for any broker."""
        self._chosen_share = BufferShare(ANY_BROKER)
        """For records whose partition a partitioner chooses once they have space: there must be
        space whatever it chooses."""
        self._claim_numbers = count()
        self._on_free = self._grant
        self._granting = False

    @property
    def callers(self) -> int:
        """How many calls wait for buffer space (Java metric ``waiting-threads``)."""
        return sum(queue.calls for queue in self._all_queues() if queue.topic.view is not None)

    def place_of(self, topic: TopicBuffer, record: Record | PendingRecord) -> int:
        """Behind which sends the record has to wait."""
        view = topic.view
        if view is None or isinstance(record, PendingRecord):
            return EVERY
        if record.partition is not None:
            return record.partition
        if record.key is None or self._ignore_keys:
            return UNBOUND
        return partition_for_key(record.key, view.partition_count)

    def must_wait(self, topic: TopicBuffer, record: Record | PendingRecord) -> bool:
        """Whether the record has to wait behind others, or for the topic's metadata."""
        if topic.view is None or isinstance(record, PendingRecord):
            return True
        if not topic.waiting:
            return False
        return topic.must_wait(self.place_of(topic, record))

    # --- joining and leaving --------------------------------------------------------------------

    def join(self, topic: TopicBuffer, record: Record | PendingRecord) -> WaitingCall:
        """Wait to append a record, whose serializer runs meanwhile. The caller must fetch the
        topic's metadata, and call :meth:`end` whatever happens."""
        call = WaitingCall(self.queue_for(topic, record), record, record.upper_bound)
        if isinstance(record, PendingRecord):
            self.start_serializer(call, record, self._limit, partial(self._serialized, call))
        return self._join(call)

    def join_exclusive(self, topic: TopicBuffer) -> WaitingCall:
        """Wait to append many records. No other record of the topic comes in between until
        :meth:`end`, also while the caller lets other tasks run. Without buffer space: it is
        claimed for a record (:meth:`claim`), so that those for other brokers can pass."""
        return self._join(WaitingCall(self._queue(topic, EVERY), None, 0, exclusive=True))

    def claim(
        self, topic: TopicBuffer, call: WaitingCall | None, room: int, record: Record
    ) -> WaitingCall:
        """Wait for ``room`` bytes, to append a record of a bulk call. ``call``: admitted, if any.

        It keeps its turn, unless the record waits for its own broker or partition: then only those
        for the partition wait behind it, and ``call`` ends.
        """
        place, turn = self.place_of(topic, record), None if call is None else call.queue.place
        if call is not None and (
            turn == place or (turn == EVERY and not self._is_limited(topic, place, room))
        ):
            self.wait_for_more(call, room)
            return call
        if turn != EVERY and EVERY in topic.waiting:
            place = EVERY
        waiting = self._join(WaitingCall(self._queue(topic, place), None, room, exclusive=True))
        if call is not None:
            self.end(call)
        return waiting

    def has_others(self, topic: TopicBuffer, record: Record, call: WaitingCall | None) -> bool:
        """Whether others wait before the record of a bulk call; ``call``: admitted, if any."""
        place = self.place_of(topic, record)
        if call is None or call.queue.place not in {place, EVERY}:
            return topic.must_wait(place)
        return call.queue.place == EVERY and place in topic.waiting

    def _is_limited(self, topic: TopicBuffer, place: int, room: int) -> bool:
        """Whether records of the place wait for their own broker: the broker's share of the buffer
        is used up, or others wait for it."""
        pool = self.buffer_pool
        if place in topic.waiting or room > pool.available:
            return True
        return not pool.may_hold(topic.share_of(place), room)

    def _join(self, call: WaitingCall) -> WaitingCall:
        self.add(call)
        self.admit(call.queue)
        return call

    def add(self, send: PendingSend) -> None:
        """Append the send to its queue."""
        send.queue.add(send)
        if send.queue.place == EVERY:
            self._accumulator.close_append_slots(send.queue.topic)

    def start_serializer(
        self,
        send: PendingSend,
        record: PendingRecord,
        limit: Limit,
        on_outcome: Callable[[Record | KafkaError], None],
    ) -> None:
        send.serializer = SerializerTask(record, limit, self.serializers, on_outcome)

    def _serialized(self, call: WaitingCall, outcome: Record | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            call.fail(outcome)  # its caller calls end()
            return
        # The call claims space again when its turn comes: now the size is known.
        charge = self._uncharge(call)
        call.serialized(outcome)
        self.buffer_pool.give_back(charge)
        self.admit(call.queue)

    def spend(self, call: WaitingCall) -> Spending:
        """Use the charge of the call: ``with pending_sends.spend(call):`` lends it to an append."""
        return self.buffer_pool.spend(self._uncharge(call))

    def wait_for_more(self, call: WaitingCall, room: int) -> None:
        """An admitted bulk call needs ``room`` more bytes.

        It keeps its turn, unless the records held behind it fill so much of the buffer that it
        would wait forever: then it goes behind them.
        """
        queue, total = call.queue, self.buffer_pool.total
        # Claims are granted in their order: those before this one have to get their bytes, too.
        most = max((claim.wants for s in self._claimed for _, claim in s.claims), default=0)
        blocked = queue.has_held and self._charged_bytes > total - max(room, most)
        call.want_more(room)
        if blocked:
            queue.requeue(call)
            self.admit(queue)
            return
        self._claim(call)
        if call.state is SendState.ADMITTED:
            call.wake()

    def end(self, call: WaitingCall) -> None:
        """Remove a call, admitted or not."""
        claims = call.state is SendState.CLAIMING
        call.end()
        call.queue.remove(call)
        if claims:
            self._withdraw(call)
            self._grant()  # the next claim may need fewer bytes
        elif call.charge:
            self.buffer_pool.give_back(self._uncharge(call))
        self.admit(call.queue)

    # --- admission ------------------------------------------------------------------------------

    def update_topic(self, view: TopicView) -> None:
        """Take up a topic's metadata, and admit the sends that waited for it."""
        topic = self._accumulator.update_topic(view, self._clock())
        if topic is not None and topic in self._queues:
            self._grant()  # partitions may have other leaders
            for queue in list(self._queues.get(topic, {}).values()):
                self.admit(queue)

    def admit(self, queue: SendQueue) -> None:
        """Admit the sends at the front of the queue that can go on. Only the first of them claims
        buffer space, so that no charge lies idle."""
        topic, waiting, admitted = queue.topic, queue.waiting, queue.admitted
        while waiting and topic.view is not None:
            first = waiting[0]
            if admitted and (first.alone or admitted[-1].exclusive):
                break
            if first.state is SendState.SERIALIZING:
                break
            if queue.place == EVERY and first.record is not None:
                self._pass_on(queue, first.record)
                continue
            if first.state is SendState.QUEUED and first.wants:
                self._claim(first)
                continue
            if first.wants:
                break
            queue.admit_first()
        if not waiting and not admitted and self._queues.get(topic, {}).get(queue.place) is queue:
            del self._queues[topic][queue.place]
            if not self._queues[topic]:
                del self._queues[topic]
            if queue.place == EVERY:
                self._accumulator.open_append_slots(topic)

    def _pass_on(self, queue: SendQueue, record: Record | PendingRecord) -> None:
        """The first send of the queue waits for its own partition only."""
        target = self._queue(queue.topic, self.place_of(queue.topic, record))
        queue.pass_on_first(target)
        if target.has_held:
            # What is held has its space, and waits for the calls before it: they go on, too. Their
            # records are in memory already.
            for send in target.waiting:
                if send.wants:
                    self._force(send)
        self.admit(target)

    def queue_for(self, topic: TopicBuffer, record: Record | PendingRecord) -> SendQueue:
        """The queue that the record joins, made if there is none."""
        place = EVERY if EVERY in topic.waiting else self.place_of(topic, record)
        return self._queue(topic, place)

    def _queue(self, topic: TopicBuffer, place: int) -> SendQueue:
        queues = self._queues.setdefault(topic, {})
        queue = queues.get(place)
        if queue is None:
            queue = queues[place] = SendQueue(topic, place)
        return queue

    def _all_queues(self) -> Iterator[SendQueue]:
        return (queue for queues in self._queues.values() for queue in queues.values())

    # --- buffer space ---------------------------------------------------------------------------

    def charge_calls(self, queue: SendQueue) -> bool:
        """Charge the space of every call that waits in the queue, before a record is held behind
        them: the record must not hold the bytes that they need. False: there is not enough."""
        if queue.admitted and queue.admitted[-1].state is SendState.CLAIMING:
            return False  # a bulk call needs more
        if queue.waiting and queue.waiting[0].state is SendState.CLAIMING:
            return False  # no call behind the first is charged, and there may be many
        uncharged: list[PendingSend] = []
        for send in reversed(queue.waiting):
            if not send.wants:
                break  # all sends before it are charged, too
            uncharged.append(send)
        for send in reversed(uncharged):
            if not self.buffer_pool.try_take(send.wants):
                return False
            self._charge(send, self._share_of(send))
        return True

    def _charge(self, send: PendingSend, share: BufferShare) -> None:
        """The bytes that the send wants are charged. They count for the share from now on: else a
        burst of sends would take more than the share may have, before the first of them appends."""
        if share is not self._any_share and share is not self._chosen_share:
            share.held += send.wants
        send.claim_in(share)
        send.charged()

    def _uncharge(self, call: WaitingCall) -> int:
        """Take the charge from the call, for the caller to use or to give back."""
        share, charge, call.charge = call.share, call.charge, 0
        if charge and share is not self._any_share and share is not self._chosen_share:
            assert share is not None
            share.held -= charge
        return charge

    def _share_of(self, send: PendingSend) -> BufferShare:
        if send.queue.place == EVERY:
            return self._any_share
        if send.queue.place == UNBOUND and not self._accumulator.settings.late:
            return self._chosen_share
        share: BufferShare = send.queue.topic.share_of(send.queue.place)
        return share

    def _holder(self, share: BufferShare) -> BufferShare:
        """The share whose bytes bound what is taken for ``share``."""
        return self.buffer_pool.shares.fullest if share is self._chosen_share else share

    def _follow_leaders(self) -> None:
        """Claim in the shares of the partitions' present leaders."""
        self.buffer_pool.shares.moved = False
        claims = [claim for share in self._claimed for claim in share.claims]
        for number, send in claims:
            if self._share_of(send) is not send.share:
                self._withdraw(send)
                self._add_claim(send, self._share_of(send), number)

    def _force(self, send: PendingSend) -> None:
        """Charge the space that the send wants, even if it is not free."""
        if send.state is SendState.CLAIMING:
            self._withdraw(send)
            send.move(SendState.QUEUED)
        self.buffer_pool.force(send.wants)
        self._charge(send, self._share_of(send))

    def _claim(self, send: PendingSend) -> None:
        """Charge the space that the send wants: at once, or when its claim is granted.

        Held records behind this one free their space only after it. So it must not wait for space:
        it is charged beyond the limit. It is in memory already.
        """
        share = self._share_of(send)
        if not send.exclusive and send.queue.has_held:
            self._force(send)
        elif not share.claims and self.buffer_pool.try_take(send.wants, self._holder(share)):
            self._charge(send, share)
        else:
            send.move(SendState.CLAIMING)
            self._add_claim(send, share, next(self._claim_numbers))
            self._grant()

    def _add_claim(self, send: PendingSend, share: BufferShare, number: int) -> None:
        send.claim_in(share)
        insort(share.claims, (number, send))
        if len(share.claims) == 1:
            self._claimed[share] = None
            self.buffer_pool.on_free = self._on_free
            # No batch lingers while a claim waits.
            self._accumulator.incomplete.reschedule(self._clock())

    def _withdraw(self, send: PendingSend) -> None:
        """The send claims no space any more."""
        share = send.share
        assert share is not None
        share.claims.remove(next(claim for claim in share.claims if claim[1] is send))
        self._claim_ended(share)

    def _claim_ended(self, share: BufferShare) -> None:
        if not share.claims:
            del self._claimed[share]
            if not self._claimed:
                self.buffer_pool.on_free = None
                self.buffer_pool.short = False

    def _grant(self) -> None:
        """Grant as many claims as fit, in their order.

        A claim whose share is used up lets the others pass. One that only has to wait for bytes to
        come free does not: else a large record would never find room. Of each share only the first
        claim is looked at: a release costs little, with thousands of waiting calls, too.
        """
        if self._granting:
            return  # the send that was granted let another one claim: the loop below goes on to it
        self._granting = True
        try:
            if self.buffer_pool.shares.moved:
                self._follow_leaders()
            while (send := self._next_claim()) is not None:
                share = send.share
                assert share is not None
                share.claims.popleft()
                self._claim_ended(share)
                self._granted(send, share)
        finally:
            self._granting = False

    def _granted(self, send: PendingSend, share: BufferShare) -> None:
        self.buffer_pool.force(send.wants)
        self._charge(send, share)
        if isinstance(send, WaitingCall) and send in send.queue.admitted:
            send.admit()  # from wait_for_more()
        else:
            send.move(SendState.QUEUED)
            self.admit(send.queue)

    def _next_claim(self) -> PendingSend | None:
        """The claim that is granted next. None: all wait."""
        pool = self.buffer_pool
        pool.short = False
        for share in sorted(self._claimed, key=lambda share: share.claims[0][0]):
            send: PendingSend = share.claims[0][1]
            if not pool.may_hold(self._holder(share), send.wants):
                continue
            if send.wants <= pool.available:
                return send
            soon = sum(share.held for share in pool.shares if self.comes_free_soon(share))
            if send.wants <= pool.available + soon:
                pool.short = True
                return None
        return None

    def comes_free_soon(self, share: BufferShare) -> bool:
        """Whether bytes of the share come free soon: not if its broker is in trouble."""
        brokers = self._accumulator.conditions.brokers
        return share.broker == ANY_BROKER or bool(brokers and brokers.keeps_reserved(share.broker))

    def look_again(self) -> bool:
        """Whether bytes that a send waits for are free for others after all: the brokers whose
        answers would have freed more are in trouble by now."""
        was_short = self.buffer_pool.short
        if was_short:
            self._grant()
        return was_short and not self.buffer_pool.short

    @property
    def _charged_bytes(self) -> int:
        return sum(queue.charged_bytes for queue in self._all_queues())

    def buffer_full(
        self, topic: TopicBuffer, place: int, nbytes: int, when: str
    ) -> BufferFullError:
        """The error of a record of the topic that finds no room."""
        pool = self.buffer_pool
        which = f"partition {place} of topic {topic.name!r}" if place >= 0 else repr(topic.name)
        return buffer_full_error(
            f"a record of up to {nbytes} bytes for {which} found no room in "
            f"buffer.memory={pool.total} ({pool.total - pool.available} bytes used, "
            f"{self.callers} callers waiting) {when}",
            self.holders(topic, place),
        )

    def holders(self, topic: TopicBuffer, place: int) -> str:
        """Which brokers' records hold the bytes that a record waits for: those of its own broker,
        if its partition is known, and those of the broker that holds the most. The latter may be
        the cause: a share is bounded by what is free."""
        fullest = self.buffer_pool.shares.fullest
        if not fullest.held:
            return "all of it is used by records that wait for metadata, or behind such records"
        own = topic.share_of(place) if place >= 0 else fullest
        if own is fullest:
            return self._held_by(own)
        return f"{self._held_by(own)}; most of the buffer, {self._held_by(fullest)}"

    def _held_by(self, share: BufferShare) -> str:
        brokers = self._accumulator.conditions.brokers
        waited = 0.0 if brokers is None else brokers.oldest_wait(share.broker, self._clock())
        since = f", whose oldest request has waited for {waited:.1f} s" if waited > 0 else ""
        return f"{share.held} bytes wait for {share.waits_for}{since}"

    # --- the end --------------------------------------------------------------------------------

    async def close(self, grace_s: float) -> None:
        """Fail all calls that wait. Serializers that were cancelled have ``grace_s`` seconds to
        end."""
        for queue in list(self._all_queues()):
            for send in (*queue.admitted, *queue.waiting):
                if isinstance(send, WaitingCall):
                    send.fail(
                        ProducerClosedError(
                            f"the producer was stopped while records for topic "
                            f"{queue.topic.name!r} waited for metadata or buffer space; they were "
                            "not sent"
                        )
                    )
        if self.serializers:  # their callers end in the next pass of the event loop
            for task in self.serializers:
                task.cancel()
            await asyncio.wait(self.serializers, timeout=grace_s)


def buffer_full_error(
    what: str, holder: str, advice: str = "send more slowly, or raise buffer.memory"
) -> BufferFullError:
    """The error of a record that was refused. ``holder``: which brokers' records fill the buffer,
    empty if that is not known."""
    held = f"; {holder}" if holder else ""
    error = BufferFullError(f"{what}{held}. It was not sent: {advice}")
    error.holder = holder
    return error
