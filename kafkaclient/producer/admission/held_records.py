"""The records of ``send_nowait`` that wait: they are held, and appended or failed, from here.

A held record has its delivery and its buffer space already. For each topic with held records a task
fetches the metadata, and fails the records that have waited too long.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.errors import (
    DeliveryTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    defect,
)
from kafkaclient.producer.admission.send_queue import PendingSend, SendState
from kafkaclient.producer.batches.delivery import delivery_for_last
from kafkaclient.producer.batches.record import PendingRecord, Record
from kafkaclient.producer.batches.topic_buffer import EVERY
from kafkaclient.producer.settings import NEVER
from kafkaclient.producer.user_code import text_of_user_error
from kafkaclient.time_limit import time_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.admission.pending_sends import PendingSends
    from kafkaclient.producer.admission.send_queue import SendQueue
    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.partition_queue import BufferShare
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer


class HeldRecord(PendingSend):
    """A record that waits. ``created``: when ``send_nowait`` was called, in the clock's seconds."""

    __slots__ = ("_held_records", "created", "delivery", "result")

    def __init__(
        self,
        held_records: HeldRecords,
        queue: SendQueue,
        record: Record | PendingRecord,
        delivery: Delivery,
        result: BatchResult,
        created: float,
    ) -> None:
        super().__init__(queue, record, record.upper_bound, alone=True)
        self._held_records = held_records
        self.delivery = delivery
        self.result = result
        self.created = created

    def admit(self) -> None:
        self.move(SendState.ADMITTED)
        self._held_records.append(self)


class HeldRecords:
    """The held records of all topics.

    ``append(topic, record, created)`` appends a held record whose topic is now known, or raises.
    ``on_failed(topic, error)`` is called for each held record that fails. ``metadata_limit`` is for
    the wait for metadata and for the serializer, ``delivery_limit`` for all of a record's wait.
    """

    def __init__(
        self,
        pending_sends: PendingSends,
        metadata: Metadata,
        *,
        metadata_limit: Limit,
        delivery_limit: Limit,
        clock: Callable[[], float],
        append: Callable[[TopicBuffer, Record, float], Delivery | None],
        new_result: Callable[[str], BatchResult],
        on_failed: Callable[[str, KafkaError], None],
    ) -> None:
        self._pending_sends = pending_sends
        self._buffer_pool = pending_sends.buffer_pool
        self._metadata = metadata
        self._metadata_limit = metadata_limit
        self._delivery_limit = delivery_limit
        self._clock = clock
        self._append = append
        self._new_result = new_result
        self._on_failed = on_failed
        self._by_topic: dict[TopicBuffer, dict[HeldRecord, None]] = {}
        """The held records of each topic, the oldest first."""
        self._tasks: dict[TopicBuffer, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        """Set when a held record was appended or has failed."""

    def __len__(self) -> int:
        """How many records are held."""
        return sum(map(len, self._by_topic.values()))

    def __iter__(self) -> Iterator[HeldRecord]:
        return (held for records in self._by_topic.values() for held in records)

    def hold(self, topic: TopicBuffer, record: Record | PendingRecord) -> Delivery | None:
        """Hold the record of a ``send_nowait`` until its turn; None: no buffer space."""
        sends, room = self._pending_sends, record.upper_bound
        queue = sends.queue_for(topic, record)
        share = self._share_of(topic, record)
        if not (sends.charge_calls(queue) and self._buffer_pool.try_take(room, share)):
            sends.admit(queue)  # drops a queue that is empty
            return None
        batch_result = self._new_result(topic.name)
        batch_result.count = 1
        delivery = delivery_for_last(batch_result, record.timestamp)
        held = HeldRecord(self, queue, record, delivery, batch_result, self._clock())
        held.charged()
        sends.add(held)
        self._by_topic.setdefault(topic, {})[held] = None
        if isinstance(record, PendingRecord):
            on_outcome = partial(self._serialized, held)
            sends.start_serializer(held, record, self._metadata_limit, on_outcome)
        self._watch(topic)
        return delivery

    def _share_of(self, topic: TopicBuffer, record: Record | PendingRecord) -> BufferShare | None:
        """The share of the buffer that the record takes, if its partition is known already."""
        place = self._pending_sends.place_of(topic, record)
        if place == EVERY and topic.view is not None and record.partition is not None:
            place = record.partition
        return None if place == EVERY else topic.share_of(place)

    def has_held(self, until: float) -> bool:
        """Whether a record that was sent at the time ``until`` or before is still held."""
        return any(held.created <= until for held in self)

    async def wait_appended(self, until: float) -> None:
        """Wait until :meth:`has_held` is false."""
        while self.has_held(until):
            self._changed.clear()
            await self._changed.wait()

    # --- the end of a held record ---------------------------------------------------------------

    def append(self, held: HeldRecord) -> None:
        """Append the record, whose turn has come."""
        topic, charge, record = held.queue.topic, held.charge, held.record
        assert isinstance(record, Record)
        self._remove(held)
        with self._buffer_pool.spend(charge):
            try:
                delivery = self._append(topic, record, held.created)
            except KafkaError as error:
                self._report(held, error)
            except BaseException as error:  # noqa: BLE001 - no record may stay without an outcome
                why = text_of_user_error(error)
                failure = defect(f"appending a record of topic {topic.name!r} failed: {why}")
                failure.__cause__ = error
                self._report(held, failure)
            else:
                assert delivery is not None
                held.delivery.move_to(delivery)

    def fail_all(self, error: KafkaError) -> int:
        """Fail every held record; returns how many there were."""
        failed = list(self)
        for held in failed:  # all at once: else the end of one admits the next
            self._take_out(held)
        for held in failed:
            self._report(held, error)
        for queue in {held.queue for held in failed}:
            self._pending_sends.admit(queue)
        return len(failed)

    def _fail(self, held: HeldRecord, error: KafkaError) -> None:
        self._take_out(held)
        self._report(held, error)
        self._pending_sends.admit(held.queue)

    def _take_out(self, held: HeldRecord) -> None:
        """The record leaves its queue, and is not appended."""
        held.queue.remove(held)
        self._remove(held)
        self._buffer_pool.give_back(held.charge)

    def _remove(self, held: HeldRecord) -> None:
        held.end()
        topic = held.queue.topic
        del self._by_topic[topic][held]
        if not self._by_topic[topic]:
            del self._by_topic[topic]
        self._changed.set()

    def _report(self, held: HeldRecord, error: KafkaError) -> None:
        held.result.fail(error)
        self._on_failed(held.queue.topic.name, error)

    def _serialized(self, held: HeldRecord, outcome: Record | KafkaError) -> None:
        """The serializer has finished: charge the true size of the record."""
        if isinstance(outcome, KafkaError):
            self._fail(held, outcome)
            return
        more = outcome.upper_bound - held.charge
        share = self._share_of(held.queue.topic, outcome)
        if more > 0 and not self._buffer_pool.try_take(more, share):
            sends, topic = self._pending_sends, held.queue.topic
            when = "when it was serialized, and send_nowait does not wait"
            place = sends.place_of(topic, outcome)
            self._fail(held, sends.buffer_full(topic, place, outcome.upper_bound, when))
            return
        held.serialized(outcome)
        held.charged()
        if more < 0:
            self._buffer_pool.give_back(-more)
        self._pending_sends.admit(held.queue)

    # --- the wait for metadata, and the time limits ---------------------------------------------

    def _oldest(self, topic: TopicBuffer) -> HeldRecord | None:
        return next(iter(self._by_topic.get(topic, ())), None)

    def _watch(self, topic: TopicBuffer) -> None:
        """Start the topic's task, unless it is running."""
        if topic not in self._tasks:
            task = asyncio.get_running_loop().create_task(
                self._run(topic), name=f"kafkaclient-metadata-{topic.name}"
            )
            self._tasks[topic] = task
            task.add_done_callback(partial(self._ended, topic))

    async def close(self) -> None:
        """End the tasks. The records have failed before."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, topic: TopicBuffer) -> None:
        limit = self._metadata_limit
        while (oldest := self._oldest(topic)) is not None:
            if topic.view is not None:
                await self._wait_turn(oldest)
                continue
            remaining = oldest.created + limit.seconds - self._clock()
            try:
                view = await self._metadata.wait_topic(topic.name, remaining, limit=limit)
                self._pending_sends.update_topic(view)
            except MetadataTimeoutError as error:
                self._fail_until(topic, oldest.created, error)
            except KafkaError as error:
                self._fail_until(topic, NEVER, error)

    async def _wait_turn(self, oldest: HeldRecord) -> None:
        """Wait until a held record is appended or has failed. ``oldest``, which waits for its
        serializer or behind other sends, fails after delivery.timeout.ms."""
        self._changed.clear()
        try:
            async with time_limit(oldest.created + self._delivery_limit.seconds - self._clock()):
                await self._changed.wait()
        except TimeoutError:
            topic = oldest.queue.topic
            if self._oldest(topic) is not oldest:
                return  # appended, or failed, at the same time
            cause = self._metadata.last_error
            error: KafkaError = DeliveryTimeoutError(
                f"the record for topic {topic.name!r} waited behind earlier records of the topic "
                f"for {self._delivery_limit}; it was not sent; last error: {cause or 'none'}"
            )
            error.__cause__ = cause
            if oldest.serializer is not None:
                error = oldest.serializer.timeout_error()
            self._fail(oldest, error)

    def _fail_until(self, topic: TopicBuffer, until: float, error: KafkaError) -> None:
        """Fail the topic's held records that were sent at the time ``until`` or before."""
        while (held := self._oldest(topic)) is not None and held.created <= until:
            self._fail(held, error)

    def _ended(self, topic: TopicBuffer, task: asyncio.Task[None]) -> None:
        """No record stays held without a task."""
        del self._tasks[topic]
        if not task.cancelled() and task.exception() is None:
            if self._oldest(topic) is not None:  # it came after the last check of the task
                self._watch(topic)
            return
        cause = "was cancelled" if task.cancelled() else f"failed: {task.exception()!r}"
        error = ProducerClosedError(
            f"the record was not sent: the task that waits for the metadata of topic "
            f"{topic.name!r} {cause}"
        )
        self._fail_until(topic, NEVER, error)
