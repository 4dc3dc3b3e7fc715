"""The way in: from a checked record to its place in a batch, waiting where the caller allows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.config.limit import Limit
from kafkaclient.errors import BufferFullError, PartitionOutOfRangeError
from kafkaclient.producer.accumulator.incomplete import largest_backlog
from kafkaclient.producer.pending_sends import PendingSends
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.view import TopicView
    from kafkaclient.metrics import ProducerMetrics
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.batches.delivery import BatchResult, Delivery
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.pending_sends import PendingSend

__all__ = ["Admission"]


class Admission:
    """``check_open()`` raises when the producer takes no more records. Times in seconds.

    ``ignore_keys``: the partitioner also chooses for records with a key. ``ask_once``: the
    partitioner is user code; it is called once per record, and only when there is buffer space for
    the record whichever partition it chooses.
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
        new_result: Callable[[str], BatchResult],
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
        self.transaction_guard: Callable[[], Callable[[], None]] = lambda: self.check_open
        """Called before the intake waits. The function that it returns is called after the wait,
        and raises if the producer or its transaction no longer accepts the record."""
        self.pending_sends = PendingSends(
            accumulator,
            metadata,
            max_block=max_block,
            clock=clock,
            place=self._place_kept,
            new_result=new_result,
            on_failed=lambda topic: metrics.records_failed(topic, 1),
        )

    def put(self, topic: str, record: Record) -> Delivery:
        """Append, or keep until its turn; raises BufferFullError instead of waiting."""
        buffer = self._accumulator.topic(topic)
        if buffer.view is None or buffer.has_waiters:
            delivery = self.pending_sends.hold(buffer, record)
        else:
            delivery = self._place_at_once(buffer, record)
        if delivery is None:
            self._metrics.buffer_exhausted()
            raise self._buffer_full(
                buffer.name, record.upper_bound, "at once, and send_nowait does not wait"
            )
        return delivery

    def try_put(self, topic: str, record: Record) -> Delivery | None:
        """Append if nothing and nobody has to be waited for."""
        return None if self.has_waiters(topic) else self.append(topic, record)

    def has_waiters(self, topic: str) -> bool:
        """Whether the topic is not known yet, or others wait for it."""
        buffer = self._accumulator.topics.get(topic)
        return buffer is None or buffer.view is None or buffer.has_waiters

    def append(
        self, topic: str, record: Record, *, force: bool = False, grown: bool = False
    ) -> Delivery | None:
        """Append without waiting. Call it only if the topic has no line, or in the caller's turn.
        Returns None if there is no buffer space, or if :meth:`is_new_partition` is true."""
        buffer = self._accumulator.topic(topic)
        if self._is_new_partition(buffer, record.partition, grown=grown):
            return None
        return self._place(buffer, record, force=force)

    def is_new_partition(self, topic: str, partition: int | None, *, grown: bool) -> bool:
        """Whether the record must wait for metadata first: the partition is not in the latest
        metadata, or earlier records still wait to learn whether the topic has grown. ``grown``: the
        caller has waited for that already, and does not wait for the earlier records."""
        return self._is_new_partition(self._accumulator.topic(topic), partition, grown=grown)

    async def wait_and_put(self, topic: str, record: Record) -> Delivery:
        """Append once the topic is known, there is room, and all who came before have appended;
        within ``max_block``."""
        deadline = self._clock() + self._max_block
        buffer, check_open = self._accumulator.topic(topic), self.transaction_guard()
        grown = False
        while True:
            turn = self.pending_sends.turn(buffer, record.upper_bound)
            try:
                await self._wait_turn(turn, deadline)
                check_open()
                if not self._is_new_partition(buffer, record.partition, grown=grown):
                    with turn.spend():
                        delivery = self._place(buffer, record, force=True)
                    assert delivery is not None
                    return delivery
            finally:
                turn.end()
            await self._wait_grown(buffer, record.partition, deadline)
            grown = True

    async def turn(self, topic: str, room: int) -> PendingSend:
        """Wait for a turn with ``room`` bytes of buffer space, to append many records; at most
        ``max_block`` seconds. The caller must call :meth:`PendingSend.end`."""
        check_open = self.transaction_guard()
        turn = self.pending_sends.turn(self._accumulator.topic(topic), room, exclusive=True)
        try:
            await self._wait_turn(turn, self._clock() + self._max_block)
            check_open()
        except BaseException:
            turn.end()
            raise
        return turn

    def join(self, topic: str) -> PendingSend:
        """A turn for a caller that waits for nothing, but lets other tasks run meanwhile."""
        return self.pending_sends.turn(self._accumulator.topic(topic), 0, exclusive=True)

    async def wait_more(self, turn: PendingSend, room: int) -> None:
        """Wait for more room within ``max_block``, while everybody else waits for this caller."""
        check_open = self.transaction_guard()
        if turn.waits_in_vain(room):
            turn.step_back(room)
        else:
            turn.ask_more(room)
        await self._wait_turn(turn, self._clock() + self._max_block)
        check_open()

    async def wait_grown(self, topic: str, partition: int | None) -> int:
        """Ask once more whether the topic has the partition; how many it has.

        Raises PartitionOutOfRangeError when ``partition`` is not one of them.
        """
        buffer, check_open = self._accumulator.topic(topic), self.transaction_guard()
        if self._is_new_partition(buffer, partition, grown=False):
            await self._wait_grown(buffer, partition, self._clock() + self._max_block)
            check_open()
        return buffer.known_view.partition_count

    def update_topic(self, view: TopicView) -> None:
        """Take up a topic's metadata, and what waited for it."""
        buffer = self._accumulator.update_topic(view, self._clock())
        if buffer is not None:
            self.pending_sends.on_topic_known(buffer)

    def _place_kept(self, buffer: TopicBuffer, record: Record, since: float) -> Delivery | None:
        return self._place_at_once(buffer, record, force=True, since=since)

    def _place_at_once(
        self,
        buffer: TopicBuffer,
        record: Record,
        *,
        force: bool = False,
        since: float | None = None,
    ) -> Delivery | None:
        """Append a record of ``send_nowait``, which cannot wait behind callers that wait to hear
        whether the topic has grown. Their metadata may be here before they have appended."""
        if record.partition in buffer.awaiting_partitions:
            raise PartitionOutOfRangeError(
                f"partition {record.partition} of topic {buffer.name!r} is new or does not exist, "
                "and earlier calls wait for metadata that tells. The record was not sent: "
                "send_nowait does not wait. Try again in a moment, or use send."
            )
        return self._place(buffer, record, force=force, since=since)

    def _place(
        self,
        buffer: TopicBuffer,
        record: Record,
        *,
        force: bool = False,
        since: float | None = None,
    ) -> Delivery | None:
        """Append; None: no buffer space, which ``force`` goes beyond. ``since``: when the record's
        delivery timeout began, if that was before now."""
        view, partition, key = buffer.view, record.partition, record.key
        assert view is not None
        ask = self._ask_once and partition is None and not force
        if ask and self._accumulator.buffer_pool.room < record.upper_bound:
            return None
        if partition is not None:
            if partition >= view.partition_count:
                self._metadata.request_refresh(f"topic {view.name!r} may have grown")
                raise _out_of_range(view, partition)
        elif key is not None and not self._ignore_keys:
            partition = partition_for_key(key, view.partition_count)
        return self._accumulator.append(
            buffer, partition, record, self._clock(), force=force, since=since
        )

    def _is_new_partition(self, buffer: TopicBuffer, partition: int | None, *, grown: bool) -> bool:
        if partition is None or buffer.view is None:
            return False
        others_wait = partition in buffer.awaiting_partitions and not grown
        return others_wait or partition >= buffer.view.partition_count

    async def _wait_turn(self, turn: PendingSend, deadline: float) -> None:
        asked_at, buffer = self._clock(), turn.line.topic
        try:
            if buffer.view is None:
                view = await self._metadata.wait_topic(buffer.name, deadline - asked_at)
                if buffer.view is not view:
                    self.update_topic(view)
        finally:
            known_at = self._clock()
            self._metrics.metadata_waited(known_at - asked_at)
        if turn.come:
            return
        try:
            async with asyncio.timeout(deadline - known_at) as limit:
                await turn.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            self._metrics.buffer_exhausted()
            within = f"within {Limit(self._max_block, 'max.block.ms')}"
            raise self._buffer_full(buffer.name, turn.room, within) from None
        finally:
            self._metrics.buffer_waited(self._clock() - known_at)

    async def _wait_grown(
        self, buffer: TopicBuffer, partition: int | None, deadline: float
    ) -> None:
        """The topic may have grown since: ask once more before refusing."""
        assert partition is not None
        asked_at = self._clock()
        buffer.await_partition(partition)
        self._accumulator.close_append_slots(buffer)
        try:
            view = await self._metadata.wait_topic(buffer.name, deadline - asked_at, fresh=True)
            if buffer.view is not view:
                self.update_topic(view)
            if partition >= view.partition_count:
                raise _out_of_range(view, partition)
        finally:
            buffer.end_await_partition(partition)
            self._accumulator.open_append_slots(buffer)
            self._metrics.metadata_waited(self._clock() - asked_at)

    def _buffer_full(self, topic: str, nbytes: int, within: str) -> BufferFullError:
        pool = self._accumulator.buffer_pool
        backlog = largest_backlog(self._accumulator.incomplete)
        return BufferFullError(
            f"a record of up to {nbytes} bytes for topic {topic!r} found no room in "
            f"buffer.memory={pool.total} ({pool.total - pool.available} bytes used, "
            f"{self.pending_sends.callers} callers waiting) {within}; "
            f"{backlog}. It was not sent: send more slowly, or raise buffer.memory."
        )


def _out_of_range(view: TopicView, partition: int) -> PartitionOutOfRangeError:
    return PartitionOutOfRangeError(
        f"topic {view.name!r} has {view.partition_count} partitions as of its latest metadata, "
        f"numbered from 0; {partition} is not one of them. The record was not sent. If the topic "
        "has just grown, try again in a moment."
    )
