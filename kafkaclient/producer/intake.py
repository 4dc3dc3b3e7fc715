"""The way in: from a checked record to its place in a batch, waiting where the caller allows it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.config.limit import Limit
from kafkaclient.errors import BufferFullError, PartitionOutOfRangeError
from kafkaclient.producer.load import largest_backlog
from kafkaclient.producer.parking import ParkingLot
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.view import TopicView
    from kafkaclient.metrics import ProducerMetrics
    from kafkaclient.producer.accumulator import RecordAccumulator
    from kafkaclient.producer.delivery import Delivery, Receipt
    from kafkaclient.producer.record import Record
    from kafkaclient.producer.topic import TopicBuffer

__all__ = ["Intake"]


class Intake:
    """``check_open()`` raises when the producer takes no more records. Times in seconds.

    ``ignore_keys``: whoever chooses partitions is asked for records with a key as well.
    ``ask_once``: it is somebody else's code, to be asked once per record, not once per attempt to
    find room: only when there is room whatever the answer.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        metrics: ProducerMetrics,
        *,
        max_block: float,
        ignore_keys: bool,
        ask_once: bool = False,
        clock: Callable[[], float],
        new_receipt: Callable[[str], Receipt],
        check_open: Callable[[], None],
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._metrics = metrics
        self._max_block = max_block
        self._ignore_keys = ignore_keys
        self._ask_once = ask_once
        self._clock = clock
        self.check_open = check_open
        self.admission: Callable[[], Callable[[], None]] = lambda: self.check_open
        """Called before a wait; what it returns is called after it, and raises if the record is
        not to be taken any more."""
        self.parking = ParkingLot(
            accumulator,
            metadata,
            max_block=max_block,
            clock=clock,
            place=partial(self._place, force=True),
            new_receipt=new_receipt,
            on_failed=lambda topic: metrics.records_failed(topic, 1),
        )

    def put(self, topic: str, record: Record) -> Delivery:
        """Append, or park until the topic is known; raises BufferFullError instead of waiting."""
        buffer = self._accumulator.topic(topic)
        if buffer.view is None or buffer.parked:
            delivery = self.parking.park(buffer, record)
        else:
            delivery = self._place(buffer, record)
        if delivery is None:
            self._metrics.buffer_exhausted()
            raise self._buffer_full(topic, record, "at once, and send_nowait does not wait")
        return delivery

    def try_put(self, topic: str, record: Record) -> Delivery | None:
        """Append if nothing has to be waited for."""
        buffer = self._accumulator.topics.get(topic)
        if buffer is None or buffer.view is None or buffer.parked:
            return None
        if record.partition is not None and record.partition >= buffer.view.partition_count:
            return None
        return self._place(buffer, record)

    async def wait_known(self, topic: str, partition: int | None) -> int:
        """Wait until the topic is known, and has the partition; how many it has."""
        buffer = self._accumulator.topic(topic)
        if buffer.view is None or (partition or 0) >= buffer.view.partition_count:
            check_open = self.admission()
            buffer.waiting += 1
            try:
                await self._wait_metadata(topic, partition, self._clock() + self._max_block)
            finally:
                buffer.waiting -= 1
            check_open()
        return buffer.known_view.partition_count

    async def wait_and_put(self, topic: str, record: Record, room: int = 0) -> Delivery:
        """Append once the topic is known and there is room, both within ``max_block``.

        Whoever has more records to come waits for so many bytes of ``room`` at once.
        """
        room = max(room, record.upper_bound)
        deadline = self._clock() + self._max_block
        buffer, check_open = self._accumulator.topic(topic), self.admission()
        buffer.waiting += 1
        try:
            await self._wait_metadata(topic, record.partition, deadline)
            check_open()
            delivery = self._place(buffer, record)
            if delivery is None:
                await self._wait_room(buffer, record, room, deadline)
                with self._accumulator.budget.spend(room):
                    check_open()
                    delivery = self._place(buffer, record, force=True)
                    assert delivery is not None
            return delivery
        finally:
            buffer.waiting -= 1

    def update_topic(self, view: TopicView) -> None:
        """Take up a topic's metadata, and what waited for it."""
        buffer = self._accumulator.update_topic(view, self._clock())
        if buffer is not None:
            self.parking.unpark(buffer)

    def _place(
        self, buffer: TopicBuffer, record: Record, *, force: bool = False
    ) -> Delivery | None:
        """Append; None: no buffer space, which ``force`` goes beyond."""
        view, partition, key = buffer.view, record.partition, record.key
        assert view is not None
        if not force:
            budget = self._accumulator.budget
            if budget.waiters:
                return None  # first come, first served
            if self._ask_once and partition is None and budget.available < record.upper_bound:
                return None
        if partition is not None:
            if partition >= view.partition_count:
                self._metadata.request_refresh(f"topic {view.name!r} may have grown")
                raise _out_of_range(view, partition)
        elif key is not None and not self._ignore_keys:
            partition = partition_for_key(key, view.partition_count)
        return self._accumulator.append(buffer, partition, record, self._clock(), force=force)

    async def _wait_room(
        self, buffer: TopicBuffer, record: Record, room: int, deadline: float
    ) -> None:
        accumulator, asked_at = self._accumulator, self._clock()
        try:
            async with asyncio.timeout(deadline - asked_at):
                await accumulator.budget.take(
                    room,
                    on_first=lambda: accumulator.incomplete.reschedule(self._clock()),
                )
        except TimeoutError:
            self._metrics.buffer_exhausted()
            within = f"within {Limit(self._max_block, 'max.block.ms')}"
            raise self._buffer_full(buffer.name, record, within) from None
        finally:
            self._metrics.buffer_waited(self._clock() - asked_at)

    async def _wait_metadata(self, topic: str, partition: int | None, deadline: float) -> None:
        asked_at = self._clock()
        try:
            view = await self._metadata.wait_topic(topic, deadline - asked_at)
            if partition is not None and partition >= view.partition_count:
                # The topic may have grown since: ask once more before refusing.
                view = await self._metadata.wait_topic(topic, deadline - self._clock(), fresh=True)
                if partition >= view.partition_count:
                    raise _out_of_range(view, partition)
        finally:
            self._metrics.metadata_waited(self._clock() - asked_at)
        buffer = self._accumulator.topic(topic)
        if buffer.view is not view:
            self.update_topic(view)

    def _buffer_full(self, topic: str, record: Record, within: str) -> BufferFullError:
        budget = self._accumulator.budget
        backlog = largest_backlog(self._accumulator.incomplete)
        return BufferFullError(
            f"a record of up to {record.upper_bound} bytes for topic {topic!r} found no room in "
            f"buffer.memory={budget.total} ({budget.total - budget.available} bytes used, "
            f"{budget.waiting} callers waiting) {within}; "
            f"{backlog}. It was not sent: send more slowly, or raise buffer.memory."
        )


def _out_of_range(view: TopicView, partition: int) -> PartitionOutOfRangeError:
    return PartitionOutOfRangeError(
        f"topic {view.name!r} has {view.partition_count} partitions as of its latest metadata, "
        f"numbered from 0; {partition} is not one of them. The record was not sent. If the topic "
        "has just grown, try again in a moment."
    )
