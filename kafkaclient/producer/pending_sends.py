"""Sends that wait for a topic's metadata or for buffer space, in order of arrival.

Each topic has one queue of waiters. A record that cannot be appended at once joins the end of the
queue. While the queue is not empty, every later record of the topic joins the queue as well, and
direct append is closed. So records are appended to batches in the order of the calls.

A coroutine that waits (``send``, ``send_many``, ``send_arrow``) has a :class:`TopicWaiter` and
appends by itself once it is admitted. A record of ``send_nowait`` has a delivery already: it waits
as a :class:`HeldRecord`, and :class:`PendingSends` appends it.
:class:`~kafkaclient.producer.topic_waiters.HeldWatches` fetches the metadata for held records.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.config.kinds import Limit
from kafkaclient.errors import BufferFullError, KafkaError, ProducerClosedError, defect
from kafkaclient.producer.batches.delivery import delivery_for_last
from kafkaclient.producer.batches.record import PendingRecord, Record
from kafkaclient.producer.topic_waiters import (
    HeldRecord,
    HeldWatches,
    SerializerTask,
    TopicWaiter,
    TopicWaiters,
)
from kafkaclient.producer.user_code import text_of_user_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.view import TopicView
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.accumulator.buffer_pool import Spending
    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer


class PendingSends:
    """The waiters of all topics.

    ``append(topic, record, created)`` appends a held record whose topic is now known, or raises.
    ``serializers`` has the serializers at work; :meth:`close` cancels them, also those of others.
    ``on_failed(topic, error)`` is called for each held record that fails. Times in seconds.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        *,
        max_block: float,
        clock: Callable[[], float],
        append: Callable[[TopicBuffer, Record, float], Delivery | None],
        new_result: Callable[[str], BatchResult],
        serializers: set[asyncio.Task[Record]],
        on_failed: Callable[[str, KafkaError], None],
    ) -> None:
        self.buffer_pool = accumulator.buffer_pool
        self._accumulator = accumulator
        self._call_limit = Limit(max_block, "max.block.ms")
        # Held records already have a delivery, so delivery.timeout.ms bounds their wait as well.
        delivery_limit = Limit(accumulator.settings.delivery_timeout, "delivery.timeout.ms")
        self._held_limit = min(self._call_limit, delivery_limit, key=lambda limit: limit.seconds)
        self._clock = clock
        self._append = append
        self._new_result = new_result
        self._serializers = serializers
        self._on_failed = on_failed
        self._topics: dict[TopicBuffer, TopicWaiters] = {}
        """The topics that have waiters."""
        self._watches = HeldWatches(
            metadata,
            metadata_limit=self._held_limit,
            delivery_limit=delivery_limit,
            clock=clock,
            oldest_held=self._oldest_held,
            take_up=self._take_up,
            fail=self._fail_held,
        )

    # --- joining and leaving --------------------------------------------------------------------

    def hold(self, topic: TopicBuffer, record: Record | PendingRecord) -> Delivery | None:
        """Hold the record of a ``send_nowait`` until its turn; None: no buffer space."""
        waiters = self._topics.get(topic)
        # Earlier callers are charged first: the record must not hold the bytes that they need.
        if waiters is not None and not waiters.charge_callers(self.buffer_pool):
            return None
        if not self.buffer_pool.try_take(record.upper_bound):
            return None
        batch_result = self._new_result(topic.name)
        batch_result.count = 1
        delivery = delivery_for_last(batch_result, record.timestamp)
        held = HeldRecord(delivery, batch_result, record, self._clock())
        self._add(topic, held)
        if isinstance(record, PendingRecord):
            self._start_serializer(topic, held, record)
        self._watches.start(topic)
        return delivery

    def join(
        self,
        topic: TopicBuffer,
        room: int,
        *,
        exclusive: bool = False,
        pending: PendingRecord | None = None,
    ) -> TopicWaiter:
        """Join the topic's waiters. The caller must fetch the topic's metadata, and call
        :meth:`end` whatever happens. ``pending``: its serializer runs while the caller waits. The
        result is ``TopicWaiter.record``."""
        waiter = TopicWaiter(self._waiters_of(topic), room, exclusive=exclusive)
        self._add(topic, waiter)
        if pending is not None:
            self._start_serializer(topic, waiter, pending)
        self.admit_waiting(topic)
        return waiter

    def spend(self, waiter: TopicWaiter) -> Spending:
        """Use the caller's charge: ``with pending_sends.spend(waiter):`` lends it to an append."""
        waiter.spent = True
        return self.buffer_pool.spend(waiter.room)

    def wait_for_more(self, waiter: TopicWaiter, room: int) -> None:
        """Have an admitted caller, whose charge is spent, wait for ``room`` more bytes.

        The caller stays admitted, unless records held behind it occupy so much of the buffer that
        the bytes cannot come free before it ends: then it waits right behind these records.
        """
        waiters, pool = waiter.waiters, self.buffer_pool
        # Claims are granted in their order: those before this one have to get their bytes, too.
        most = max((claim.nbytes for claim in pool.waiters), default=0)
        blocked = waiters.oldest_held is not None and self._charged_bytes > pool.total - max(
            room, most
        )
        waiter.need(room)
        if blocked:
            waiters.requeue(waiter)
            self.admit_waiting(waiters.topic)
            return
        self._request_space(waiter)
        if waiter.charged:
            waiter.admit()

    def end(self, waiter: TopicWaiter) -> None:
        """Remove a caller, admitted or not."""
        waiter.waiters.remove(waiter)
        if waiter.serializer_task is not None:
            waiter.serializer_task.cancel()
        if waiter.claim is not None:
            self.buffer_pool.withdraw(waiter.claim)
        elif waiter.charged and not waiter.spent:
            self.buffer_pool.give_back(waiter.room)
        self.admit_waiting(waiter.waiters.topic)

    def _request_space(self, waiter: TopicWaiter) -> None:
        """Request the caller's buffer space, which is charged at once or granted later.

        A record whose serializer has made it larger than what was charged before may have records
        held behind it, whose space comes free only after it. It does not wait for them: it is in
        memory already.
        """
        if waiter.record is not None and waiter.waiters.oldest_held is not None:
            self.buffer_pool.force(waiter.room)
            waiter.charged = True
            return
        waiter.claim = self.buffer_pool.ask(waiter.room, partial(self._granted, waiter))
        waiter.charged = waiter.claim is None
        if self.buffer_pool.waiting == 1 and not waiter.charged:
            # No batch lingers while a caller waits for buffer space.
            self._accumulator.incomplete.reschedule(self._clock())

    def admit_waiting(self, topic: TopicBuffer) -> None:
        """Admit the waiters at the front of the topic's queue that can go on.

        Several callers with a single record may be admitted before the first of them has appended:
        their tasks run in the order of the admissions. An exclusive caller, or a held record, waits
        until all callers admitted before have ended. Only the first waiter requests buffer space,
        so that no charge lies idle.
        """
        waiters = self._topics.get(topic)
        if waiters is None:
            return
        waiting, admitted = waiters.waiting, waiters.admitted
        while waiting and topic.view is not None and not (admitted and admitted[-1].exclusive):
            first = waiting[0]
            if first.serializer_task is not None:
                break
            if admitted and (isinstance(first, HeldRecord) or first.exclusive):
                break
            if isinstance(first, HeldRecord):
                waiters.pop_first()
                self._append_held(topic, first)
                continue
            if first.claim is None and not first.charged:
                self._request_space(first)
            if not first.charged:
                break
            waiters.pop_first()
            first.admit()
        if not waiting and not admitted:
            self._topics.pop(topic, None)
            self._accumulator.open_append_slots(topic)

    def _add(self, topic: TopicBuffer, waiter: TopicWaiter | HeldRecord) -> None:
        self._waiters_of(topic).add(waiter)
        self._accumulator.close_append_slots(topic)

    def _waiters_of(self, topic: TopicBuffer) -> TopicWaiters:
        waiters = self._topics.get(topic)
        if waiters is None:
            waiters = self._topics[topic] = TopicWaiters(topic)
        return waiters

    def _granted(self, waiter: TopicWaiter) -> None:
        waiter.claim, waiter.charged = None, True
        if waiter in waiter.waiters.admitted:
            waiter.admit()  # from wait_for_more()
        else:
            self.admit_waiting(waiter.waiters.topic)

    @property
    def _charged_bytes(self) -> int:
        """The bytes of buffer space that waiters have been charged."""
        return sum(waiters.charged_bytes for waiters in self._topics.values())

    @property
    def callers(self) -> int:
        """How many callers wait for buffer space (Java metric ``waiting-threads``)."""
        return sum(w.callers for w in self._topics.values() if w.topic.view is not None)

    # --- held records ---------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many records are held."""
        return sum(1 for _ in self._held())

    def _held(self) -> Iterator[tuple[TopicBuffer, HeldRecord]]:
        for topic, waiters in self._topics.items():
            for held in waiters.held():
                yield topic, held

    def fail_all(self, error: KafkaError) -> int:
        """Fail every held record; returns how many there were."""
        failed = list(self._held())
        for topic, held in failed:  # all at once: else the end of one admits the next
            self._remove_held(topic, held)
        for topic, held in failed:
            self._fail(topic, held, error)
        for topic in {topic for topic, _ in failed}:
            self.admit_waiting(topic)
        return len(failed)

    def has_held(self, until: float) -> bool:
        """Whether a record that was sent at the time ``until`` or before is still held."""
        return any(held.created <= until for _, held in self._held())

    async def wait_appended(self, until: float) -> None:
        """Wait until :meth:`has_held` is false."""
        while self.has_held(until):
            self._watches.held_changed.clear()
            await self._watches.held_changed.wait()

    async def close(self, grace_s: float) -> None:
        """Fail all callers that wait; the held records have failed before. Serializers that were
        cancelled have ``grace_s`` seconds to end."""
        for topic, waiters in list(self._topics.items()):
            for waiter in (*waiters.admitted, *waiters.waiting):
                if isinstance(waiter, TopicWaiter):
                    waiter.fail(
                        ProducerClosedError(
                            f"the producer was stopped while records for topic {topic.name!r} "
                            "waited for metadata or buffer space; they were not sent"
                        )
                    )
        await self._watches.stop()
        if self._serializers:  # their callers end in the next pass of the event loop
            for task in self._serializers:
                task.cancel()
            await asyncio.wait(self._serializers, timeout=grace_s)

    # --- serializers ----------------------------------------------------------------------------

    def _start_serializer(
        self, topic: TopicBuffer, waiter: TopicWaiter | HeldRecord, record: PendingRecord
    ) -> None:
        """Run the serializer of a waiter's record."""
        limit = self._held_limit if isinstance(waiter, HeldRecord) else self._call_limit
        settle = partial(self._on_serialized, topic, waiter)
        waiter.serializer_task = SerializerTask(record, limit, self._serializers, settle)

    def _on_serialized(
        self, topic: TopicBuffer, waiter: TopicWaiter | HeldRecord, outcome: Record | KafkaError
    ) -> None:
        """The serializer of a waiter's record has finished: the record's size is known."""
        if isinstance(outcome, Record) and isinstance(waiter, HeldRecord):
            outcome = self._recharged(topic, waiter, outcome)
        if isinstance(outcome, Record):
            # A caller asks for space again when its turn comes.
            charged = waiter.charged_bytes if isinstance(waiter, TopicWaiter) else 0
            waiter.set_record(outcome)
            self.buffer_pool.give_back(charged)
            self.admit_waiting(topic)
        elif isinstance(waiter, HeldRecord):
            self._fail_held(topic, waiter, outcome)
        else:
            waiter.fail(outcome)  # its caller calls end()

    def _recharged(
        self, topic: TopicBuffer, held: HeldRecord, record: Record
    ) -> Record | BufferFullError:
        """The record, charged with its true size; or the error if there is no space for it."""
        more = record.upper_bound - held.record.upper_bound
        if more <= 0:
            self.buffer_pool.give_back(-more)
        elif not self.buffer_pool.try_take(more):
            return BufferFullError(
                f"a record of up to {record.upper_bound} bytes for topic {topic.name!r} found no "
                f"room in buffer.memory={self.buffer_pool.total} when it was serialized, and "
                "send_nowait does not wait. It was not sent: send more slowly, or raise "
                "buffer.memory."
            )
        return record

    # --- the end of held records ----------------------------------------------------------------

    def _append_held(self, topic: TopicBuffer, held: HeldRecord) -> None:
        with self.buffer_pool.spend(held.record.upper_bound):
            assert isinstance(held.record, Record)
            try:
                delivery = self._append(topic, held.record, held.created)
            except KafkaError as error:
                self._fail(topic, held, error)
            except BaseException as error:  # noqa: BLE001 - no record may stay without an outcome
                why = text_of_user_error(error)
                failure = defect(f"appending a record of topic {topic.name!r} failed: {why}")
                failure.__cause__ = error
                self._fail(topic, held, failure)
            else:
                assert delivery is not None
                held.delivery.move_to(delivery)
        self._watches.held_changed.set()

    def _fail_held(self, topic: TopicBuffer, held: HeldRecord, error: KafkaError) -> None:
        self._remove_held(topic, held)
        self._fail(topic, held, error)
        self.admit_waiting(topic)

    def _remove_held(self, topic: TopicBuffer, held: HeldRecord) -> None:
        self._waiters_of(topic).remove(held)
        if held.serializer_task is not None:
            held.serializer_task.cancel()
        self.buffer_pool.give_back(held.record.upper_bound)
        self._watches.held_changed.set()

    def _fail(self, topic: TopicBuffer, held: HeldRecord, error: KafkaError) -> None:
        held.result.fail(error)
        self._on_failed(topic.name, error)

    def _oldest_held(self, topic: TopicBuffer) -> HeldRecord | None:
        waiters = self._topics.get(topic)
        return None if waiters is None else waiters.oldest_held

    def _take_up(self, topic: TopicBuffer, view: TopicView) -> None:
        """The metadata for held records has arrived."""
        if self._accumulator.update_topic(view, self._clock()) is topic:
            self.admit_waiting(topic)
