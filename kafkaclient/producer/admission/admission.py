"""Appends checked records to batches, or has them wait for metadata or buffer space."""

from __future__ import annotations

import math
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.config.kinds import Limit
from kafkaclient.errors import (
    DeliveryTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
)
from kafkaclient.producer.admission.held_records import HeldRecords
from kafkaclient.producer.admission.pending_sends import PendingSends
from kafkaclient.producer.batches.record import PendingRecord, Record
from kafkaclient.producer.batches.topic_buffer import EVERY
from kafkaclient.time_limit import time_limit
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.view import TopicView
    from kafkaclient.metrics import ProducerMetrics
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.admission.send_queue import WaitingCall
    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer

CALL_DEADLINE: ContextVar[float] = ContextVar("kafkaclient_call_deadline")
"""When a call that began in another thread has waited for max.block.ms, in seconds of the
producer's clock. Not set: the call began in the event loop, and each of its waits has that time."""


class Admission:
    """The last step of ``send``. Times in seconds.

    ``new_guard()`` is called before a record waits. The function that it returns is called after
    the wait. It raises if the producer takes no more records, or if the transaction has ended.
    ``on_failed(error)`` is called for each held record that fails.

    ``ignore_keys``: the partitioner also chooses for records with a key.
    ``call_partitioner_once``: the partitioner is user code. It is called exactly once per record,
    and only when there is buffer space for the record whichever partition it chooses.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        metrics: ProducerMetrics,
        *,
        max_block: float,
        ignore_keys: bool,
        call_partitioner_once: bool = False,
        clock: Callable[[], float],
        new_result: Callable[[str], BatchResult],
        new_guard: Callable[[], Callable[[], None]],
        on_failed: Callable[[KafkaError], None],
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._metrics = metrics
        self._limit = Limit(max_block, "max.block.ms")
        self._ignore_keys = ignore_keys
        self._call_partitioner_once = call_partitioner_once
        self._clock = clock
        self.new_guard = new_guard
        self._on_failed = on_failed
        self.pending_sends = PendingSends(
            accumulator, limit=self._limit, ignore_keys=ignore_keys, clock=clock
        )
        # Held records already have a delivery, so delivery.timeout.ms bounds their wait as well.
        delivery_limit = Limit(accumulator.settings.delivery_timeout, "delivery.timeout.ms")
        self.held_records = HeldRecords(
            self.pending_sends,
            metadata,
            metadata_limit=min(self._limit, delivery_limit, key=lambda limit: limit.seconds),
            delivery_limit=delivery_limit,
            clock=clock,
            append=self._append_nowait,
            new_result=new_result,
            on_failed=self._held_failed,
        )

    def append_or_hold(self, topic: str, record: Record | PendingRecord) -> Delivery:
        """Append a record of ``send_nowait``, or hold it until its turn; raises BufferFullError
        instead of waiting."""
        buffer = self._accumulator.topic(topic)
        delivery = self._try_append_or_hold(buffer, record)
        if delivery is None and self.pending_sends.look_again():
            delivery = self._try_append_or_hold(buffer, record)
        if delivery is None:
            self._metrics.buffer_exhausted()
            raise self.pending_sends.buffer_full(
                buffer,
                self.pending_sends.place_of(buffer, record),
                record.upper_bound,
                "at once, and send_nowait does not wait",
            )
        return delivery

    def _try_append_or_hold(
        self, buffer: TopicBuffer, record: Record | PendingRecord
    ) -> Delivery | None:
        if self.pending_sends.must_wait(buffer, record):
            return self.held_records.hold(buffer, record)
        assert isinstance(record, Record)
        return self._append_nowait(buffer, record)

    def try_append(self, topic: str, record: Record | PendingRecord) -> Delivery | None:
        """Append; None: the record has to wait."""
        buffer, partition = self._accumulator.topic(topic), record.partition
        if self.pending_sends.must_wait(buffer, record):
            return None
        assert isinstance(record, Record)
        if partition is not None and self.must_wait_for_partition(buffer, partition):
            return None
        return self._append(buffer, record)

    def is_known(self, topic: str) -> bool:
        """Whether the topic's metadata is known, and no record waits for all of its partitions."""
        buffer = self._accumulator.topics.get(topic)
        return buffer is not None and buffer.view is not None and EVERY not in buffer.waiting

    def append(
        self,
        topic: str,
        record: Record,
        call: WaitingCall | None,
        *,
        force: bool = False,
        refreshed: bool = False,
    ) -> Delivery | None:
        """Append a record of a bulk call without waiting; ``call``: admitted, if it has waited.

        Returns None if the record has to wait behind others, if :meth:`must_wait_for_partition` is
        true, or if there is no buffer space; with ``force`` it is appended without space."""
        buffer = self._accumulator.topic(topic)
        if self.must_wait_for_partition(buffer, record.partition, refreshed=refreshed):
            return None
        if self.pending_sends.has_others(buffer, record, call):
            return None
        return self._append(buffer, record, force=force)

    def must_wait_for_partition(
        self, buffer: TopicBuffer, partition: int | None, *, refreshed: bool = False
    ) -> bool:
        """Whether the record must wait for metadata first: the partition is not in the latest
        metadata, or earlier records still wait for metadata that shows whether the topic has grown.
        ``refreshed``: the caller has waited for such metadata, and does not wait for the earlier
        records."""
        if partition is None or buffer.view is None:
            return False
        others_wait = partition in buffer.awaiting_partitions and not refreshed
        return others_wait or partition >= buffer.view.partition_count

    def deadline(self) -> float:
        """When a wait that begins now has to end."""
        return min(self._clock() + self._limit.seconds, CALL_DEADLINE.get(math.inf))

    async def wait_and_append(self, topic: str, record: Record | PendingRecord) -> Delivery:
        """Append once the record is serialized, the topic's metadata is known, there is buffer
        space, and all earlier records of the topic are appended; within ``max_block``."""
        deadline = self.deadline()
        buffer, guard = self._accumulator.topic(topic), self.new_guard()
        refreshed = False
        while True:
            send = self.pending_sends.join(buffer, record)
            try:
                await self._wait_admitted(send, deadline)
                guard()
                assert send.record is not None
                record = send.record
                assert isinstance(record, Record)
                if not self.must_wait_for_partition(buffer, record.partition, refreshed=refreshed):
                    with self.pending_sends.spend(send):
                        delivery = self._append(buffer, record, force=True)
                    assert delivery is not None
                    return delivery
            finally:
                self.pending_sends.end(send)
            await self._wait_new_partition(buffer, record.partition, deadline)
            refreshed = True

    async def wait_turn(self, send: WaitingCall, deadline: float) -> None:
        """Wait until the call may append, or raise BufferFullError at the deadline."""
        guard = self.new_guard()
        await self._wait_admitted(send, deadline)
        guard()

    async def comes_within(self, send: WaitingCall, seconds: float) -> bool:
        """Whether the turn of the call comes soon, or the call fails: :meth:`wait_turn` tells."""
        asked_at = self._clock()
        await send.wait_woken(min(seconds, self._limit.seconds))
        self._metrics.buffer_waited(self._clock() - asked_at)
        return send.is_woken

    async def wait_exclusive(self, topic: str, deadline: float) -> WaitingCall:
        """Wait until many records may be appended. The caller must call
        :meth:`PendingSends.end`."""
        send = self.join_exclusive(topic)
        try:
            await self.wait_turn(send, deadline)
        except BaseException:
            self.pending_sends.end(send)
            raise
        return send

    def join_exclusive(self, topic: str) -> WaitingCall:
        """See :meth:`PendingSends.join_exclusive`."""
        return self.pending_sends.join_exclusive(self._accumulator.topic(topic))

    async def wait_new_partition(self, topic: str, partition: int | None) -> int:
        """Fetch metadata once more if the partition is not known; returns the partition count.

        Raises PartitionOutOfRangeError when the topic does not have ``partition``.
        """
        buffer, guard = self._accumulator.topic(topic), self.new_guard()
        if self.must_wait_for_partition(buffer, partition):
            await self._wait_new_partition(buffer, partition, self.deadline())
            guard()
        return buffer.known_view.partition_count

    async def close(self, grace_s: float) -> None:
        """Fail all calls that wait; the held records have failed before. Serializers that were
        cancelled have ``grace_s`` seconds to end."""
        await self.held_records.close()
        await self.pending_sends.close(grace_s)

    def _held_failed(self, topic: str, error: KafkaError) -> None:
        self._metrics.records_failed(topic, 1)
        self._on_failed(error)

    def _append_nowait(
        self, buffer: TopicBuffer, record: Record, held_since: float | None = None
    ) -> Delivery | None:
        """Append a record of ``send_nowait``. It cannot wait behind callers that wait for metadata
        of a new partition: the metadata may arrive before these callers have appended.
        ``held_since``: the record was held since then, and its buffer space is charged."""
        if record.partition in buffer.awaiting_partitions:
            raise PartitionOutOfRangeError(
                f"partition {record.partition} of topic {buffer.name!r} is new or does not exist; "
                "earlier calls wait for metadata that shows which. The record was not sent: "
                "send_nowait does not wait. Try again in a moment, or use send"
            )
        return self._append(buffer, record, force=held_since is not None, created=held_since)

    def _append(
        self,
        buffer: TopicBuffer,
        record: Record,
        *,
        force: bool = False,
        created: float | None = None,
    ) -> Delivery | None:
        """Append; None: no buffer space. With ``force`` the record is appended nevertheless.
        ``created``: when the record's delivery timeout began, if that was before now."""
        view, partition, key = buffer.view, record.partition, record.key
        assert view is not None
        user_code = self._call_partitioner_once and partition is None and not force
        pool = self._accumulator.buffer_pool
        if user_code and pool.room(pool.shares.fullest) < record.upper_bound:
            return None
        if partition is not None:
            if partition >= view.partition_count:
                self._metadata.request_refresh(f"topic {view.name!r} may have grown")
                raise _out_of_range(view, partition)
        elif key is not None and not self._ignore_keys:
            partition = partition_for_key(key, view.partition_count)
        return self._accumulator.append(
            buffer, partition, record, self._clock(), force=force, since=created
        )

    async def _wait_admitted(self, send: WaitingCall, deadline: float) -> None:
        asked_at, buffer = self._clock(), send.queue.topic
        try:
            if buffer.view is None:
                view = await self._metadata.wait_topic(buffer.name, deadline - asked_at)
                if buffer.view is not view:
                    self.pending_sends.update_topic(view)
        finally:
            known_at = self._clock()
            self._metrics.metadata_waited(known_at - asked_at)
        if send.may_append:
            return
        try:
            async with time_limit(deadline - known_at) as limit:
                what = f"buffer space for records of topic {buffer.name!r}"
                why = partial(self._why_full, send)
                with self._metadata.waits.wait(what, why, topic=buffer.name):
                    await send.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            if not await send.take_turn():
                raise self._not_admitted(send) from None
        finally:
            self._metrics.buffer_waited(self._clock() - known_at)

    def _not_admitted(self, send: WaitingCall) -> KafkaError:
        """The error for a caller that has waited for max.block.ms: what it has waited for."""
        if send.serializer is not None:
            return send.serializer.timeout_error()
        topic, limit = send.queue.topic, self._limit
        if topic.view is None or send.queue.waits_for_serializer:
            kind = MetadataTimeoutError if topic.view is None else DeliveryTimeoutError
            return kind(
                f"a record for topic {topic.name!r} was not sent: it has waited for {limit}: "
                f"{self._why_full(send)}"
            )
        self._metrics.buffer_exhausted()
        room, place = send.wants + send.charge, send.queue.place
        return self.pending_sends.buffer_full(topic, place, room, f"within {limit}")

    async def _wait_new_partition(
        self, buffer: TopicBuffer, partition: int | None, deadline: float
    ) -> None:
        """The topic may have grown: fetch fresh metadata before refusing the partition."""
        assert partition is not None
        asked_at = self._clock()
        buffer.await_partition(partition)
        self._accumulator.close_append_slots(buffer)
        try:
            view = await self._metadata.wait_topic(buffer.name, deadline - asked_at, fresh=True)
            if buffer.view is not view:
                self.pending_sends.update_topic(view)
            if partition >= view.partition_count:
                raise _out_of_range(view, partition)
        finally:
            buffer.end_await_partition(partition)
            self._accumulator.open_append_slots(buffer)
            self._metrics.metadata_waited(self._clock() - asked_at)

    def _why_full(self, send: WaitingCall) -> str:
        """Why a caller is not admitted."""
        if send.queue.topic.view is None:
            return "the topic's metadata was dropped during the wait"
        if send.queue.waits_for_serializer:
            return "the serializer of the topic's first record that waits has not finished"
        pool = self._accumulator.buffer_pool
        used = f"{pool.total - pool.available} of {pool.total} bytes of buffer.memory are used"
        return f"{used}; {self.pending_sends.holders(send.queue.topic, send.queue.place)}"


def _out_of_range(view: TopicView, partition: int) -> PartitionOutOfRangeError:
    return PartitionOutOfRangeError(
        f"topic {view.name!r} has {view.partition_count} partitions as of its latest metadata, "
        f"numbered from 0; {partition} is not one of them. The record was not sent. If the topic "
        "has just grown, try again in a moment"
    )
