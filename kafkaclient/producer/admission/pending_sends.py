"""Who waits for what, in which order: the sends of all topics that cannot be appended at once.

Each topic has one queue. A record that cannot be appended at once joins the end of the queue. While
the queue is not empty, every later record of the topic joins it as well, and direct append is
closed. So records are appended to batches in the order of the calls. The first sends of the queues
that wait for buffer space get it in the order in which they came to need it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError, ProducerClosedError
from kafkaclient.producer.admission.send_queue import (
    PendingSend,
    SendQueue,
    SendState,
    WaitingCall,
)
from kafkaclient.producer.admission.serializing import SerializerTask
from kafkaclient.producer.batches.record import PendingRecord, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.cluster.view import TopicView
    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.accumulator.buffer_pool import Spending
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer


class PendingSends:
    """The queues of all topics. Times in seconds; ``limit`` is for the serializers of calls."""

    def __init__(
        self, accumulator: RecordAccumulator, *, limit: Limit, clock: Callable[[], float]
    ) -> None:
        self.buffer_pool = accumulator.buffer_pool
        self.serializers: set[asyncio.Task[Record]] = set()
        """The serializers at work, also those of bulk calls, which :meth:`close` cancels."""
        self._accumulator = accumulator
        self._limit = limit
        self._clock = clock
        self._queues: dict[TopicBuffer, SendQueue] = {}
        """The topics whose queues are not empty."""
        self._claims: deque[PendingSend] = deque()
        """The sends that wait for buffer space, first come first."""
        self._on_free = self._grant

    @property
    def callers(self) -> int:
        """How many calls wait for buffer space (Java metric ``waiting-threads``)."""
        return sum(q.calls for q in self._queues.values() if q.topic.view is not None)

    # --- joining and leaving --------------------------------------------------------------------

    def join(self, topic: TopicBuffer, record: Record | PendingRecord) -> WaitingCall:
        """Wait to append a record, whose serializer runs meanwhile. The caller must fetch the
        topic's metadata, and call :meth:`end` whatever happens."""
        call = WaitingCall(self.queue(topic), record, record.upper_bound)
        if isinstance(record, PendingRecord):
            self.start_serializer(call, record, self._limit, partial(self._serialized, call))
        return self._join(call)

    def join_exclusive(self, topic: TopicBuffer, room: int = 0) -> WaitingCall:
        """Wait to append many records, with ``room`` bytes of buffer space. No other record of the
        topic comes in between until :meth:`end`, also while the caller lets other tasks run."""
        return self._join(WaitingCall(self.queue(topic), None, room, exclusive=True))

    def _join(self, call: WaitingCall) -> WaitingCall:
        self.add(call)
        self.admit(call.queue)
        return call

    def add(self, send: PendingSend) -> None:
        """Append the send to its queue."""
        send.queue.add(send)
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
        charge = call.charge
        call.serialized(outcome)
        self.buffer_pool.give_back(charge)
        self.admit(call.queue)

    def spend(self, call: WaitingCall) -> Spending:
        """Use the charge of the call: ``with pending_sends.spend(call):`` lends it to an append."""
        charge, call.charge = call.charge, 0
        return self.buffer_pool.spend(charge)

    def wait_for_more(self, call: WaitingCall, room: int) -> None:
        """Have an admitted call, whose charge is spent, wait for ``room`` more bytes.

        The call stays admitted, unless records held behind it occupy so much of the buffer that the
        bytes cannot come free before it ends: then it waits right behind these records.
        """
        queue, total = call.queue, self.buffer_pool.total
        # Claims are granted in their order: those before this one have to get their bytes, too.
        most = max((claim.wants for claim in self._claims), default=0)
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
            self._claims.remove(call)
            self._claims_changed()
            self._grant()  # the next claim may need fewer bytes
        elif call.charge:
            self.buffer_pool.give_back(call.charge)
        self.admit(call.queue)

    # --- admission ------------------------------------------------------------------------------

    def update_topic(self, view: TopicView) -> None:
        """Take up a topic's metadata, and admit the sends that waited for it."""
        topic = self._accumulator.update_topic(view, self._clock())
        if topic is not None and topic in self._queues:
            self.admit(self._queues[topic])

    def admit(self, queue: SendQueue) -> None:
        """Admit the sends at the front of the queue that can go on. Only the first of them claims
        buffer space, so that no charge lies idle."""
        waiting, admitted = queue.waiting, queue.admitted
        while waiting and queue.topic.view is not None:
            first = waiting[0]
            if admitted and (first.alone or admitted[-1].exclusive):
                break
            if first.state is SendState.SERIALIZING:
                break
            if first.state is SendState.QUEUED and first.wants:
                self._claim(first)
            if first.wants:
                break
            queue.admit_first()
        if not waiting and not admitted and self._queues.get(queue.topic) is queue:
            del self._queues[queue.topic]
            self._accumulator.open_append_slots(queue.topic)

    def queue(self, topic: TopicBuffer) -> SendQueue:
        """The topic's queue, made if there is none."""
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = SendQueue(topic)
        return queue

    # --- buffer space ---------------------------------------------------------------------------

    def charge_calls(self, topic: TopicBuffer) -> bool:
        """Charge the space of every call that waits, before a record is held behind them: the
        record must not hold the bytes that they need. False: there is not enough."""
        queue = self._queues.get(topic)
        if queue is None:
            return True
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
            send.charged()
        return True

    def _claim(self, send: PendingSend) -> None:
        """Charge the space that the send wants: at once, or when its claim is granted.

        A record whose serializer has made it larger than what was charged before may have records
        held behind it, whose space comes free only after it. It does not wait for them: it is in
        memory already.
        """
        if not send.exclusive and send.queue.has_held:
            self.buffer_pool.force(send.wants)
            send.charged()
        elif self.buffer_pool.try_take(send.wants):
            send.charged()
        else:
            send.move(SendState.CLAIMING)
            self._claims.append(send)
            self._claims_changed()
            if len(self._claims) == 1:
                # No batch lingers while a claim waits.
                self._accumulator.incomplete.reschedule(self._clock())

    def _grant(self) -> None:
        """Grant as many claims as fit, in their order.

        Only the first claim is looked at: a release costs O(1) plus O(1) for each granted claim,
        with thousands of waiting calls, too.
        """
        while self._claims and self._claims[0].wants <= self.buffer_pool.available:
            send = self._claims.popleft()
            self._claims_changed()
            self.buffer_pool.force(send.wants)
            send.charged()
            if isinstance(send, WaitingCall) and send in send.queue.admitted:
                send.admit()  # from wait_for_more()
            else:
                send.move(SendState.QUEUED)
                self.admit(send.queue)

    def _claims_changed(self) -> None:
        self.buffer_pool.on_free = self._on_free if self._claims else None

    @property
    def _charged_bytes(self) -> int:
        return sum(queue.charged_bytes for queue in self._queues.values())

    # --- the end --------------------------------------------------------------------------------

    async def close(self, grace_s: float) -> None:
        """Fail all calls that wait. Serializers that were cancelled have ``grace_s`` seconds to
        end."""
        for queue in list(self._queues.values()):
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
