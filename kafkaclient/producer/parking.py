"""Records given to ``send_nowait`` before their topic's metadata is known.

They keep their order, count against the buffer budget, and fail with the metadata's error once
they have waited for ``max.block.ms``, or ``delivery.timeout.ms`` if that is less.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.config.limit import Limit
from kafkaclient.errors import KafkaError, MetadataTimeoutError, ProducerClosedError
from kafkaclient.producer.topic import ParkedRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.producer.accumulator import RecordAccumulator
    from kafkaclient.producer.delivery import Delivery, Receipt
    from kafkaclient.producer.record import Record
    from kafkaclient.producer.topic import TopicBuffer

__all__ = ["ParkingLot"]


class ParkingLot:
    """``place(topic, record)`` appends a record whose topic is known now, or raises;
    ``on_failed(topic)`` is called for each record that fails here."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        *,
        max_block: float,
        clock: Callable[[], float],
        place: Callable[[TopicBuffer, Record], Delivery | None],
        new_receipt: Callable[[str], Receipt],
        on_failed: Callable[[str], None],
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        # The delivery exists from the first moment, so its deadline holds here as well.
        delivery_timeout = accumulator.settings.delivery_timeout
        self._limit = Limit(max_block, "max.block.ms")
        if delivery_timeout < max_block:
            self._limit = Limit(delivery_timeout, "delivery.timeout.ms")
        self._clock = clock
        self._place = place
        self._new_receipt = new_receipt
        self._on_failed = on_failed
        self.on_failed: Callable[[KafkaError], None] = lambda _: None
        """Called with the error of every record that fails."""
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._some_left = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(self._accumulator.topics[name].parked) for name in self._watches)

    def park(self, topic: TopicBuffer, record: Record) -> Delivery | None:
        """Keep the record until the topic is known; None: no buffer space."""
        if not self._accumulator.budget.try_take(record.upper_bound):
            return None
        receipt = self._new_receipt(topic.name)
        receipt.count = 1
        delivery = receipt.handle(record.timestamp)
        topic.parked.append(ParkedRecord(delivery, receipt, record, self._clock()))
        if topic.name not in self._watches:
            self._start_watch(topic)
        return delivery

    def unpark(self, topic: TopicBuffer) -> None:
        """The topic is known: put its records into batches, in their order."""
        while topic.parked:
            parked = topic.parked.popleft()
            with self._accumulator.budget.spend(parked.record.upper_bound):
                try:
                    delivery = self._place(topic, parked.record)
                except KafkaError as error:
                    self._fail(topic, parked, error)
                else:
                    assert delivery is not None
                    parked.delivery.move_to(delivery)
        self._some_left.set()

    def fail_all(self, error: KafkaError) -> int:
        """Fail every parked record; how many there were."""
        failed = 0
        for topic in self._accumulator.topics.values():
            while topic.parked:
                self._fail_first(topic, error)
                failed += 1
        for watch in self._watches.values():
            watch.cancel()  # nobody needs what they wait for
        return failed

    def holds_from(self, until: float) -> bool:
        """Whether a record is still here that was parked at the time ``until`` or before."""
        topics = self._accumulator.topics
        return any(
            parked and parked[0].parked_at <= until
            for parked in (topics[name].parked for name in self._watches)
        )

    async def wait_gone(self, until: float) -> None:
        """Wait until :meth:`holds_from` is false."""
        while self.holds_from(until):
            self._some_left.clear()
            await self._some_left.wait()

    async def close(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)

    def _start_watch(self, topic: TopicBuffer) -> None:
        watch = asyncio.get_running_loop().create_task(
            self._watch(topic), name=f"kafkaclient-metadata-{topic.name}"
        )
        self._watches[topic.name] = watch
        watch.add_done_callback(partial(self._unwatched, topic))

    async def _watch(self, topic: TopicBuffer) -> None:
        """Wait for the topic's metadata until the oldest parked record has waited long enough."""
        while topic.parked:
            oldest = topic.parked[0].parked_at
            remaining = oldest + self._limit.seconds - self._clock()
            try:
                view = await self._metadata.wait_topic(topic.name, remaining, limit=self._limit)
            except MetadataTimeoutError as error:
                while topic.parked and topic.parked[0].parked_at <= oldest:
                    self._fail_first(topic, error)
            except KafkaError as error:
                while topic.parked:
                    self._fail_first(topic, error)
            else:
                self._accumulator.update_topic(view, self._clock())
                self.unpark(topic)

    def _unwatched(self, topic: TopicBuffer, watch: asyncio.Task[None]) -> None:
        """A watch has ended; no record stays parked without one."""
        del self._watches[topic.name]
        if not watch.cancelled() and watch.exception() is None:
            if topic.parked:  # it came after the watch had looked
                self._start_watch(topic)
            return
        cause = "was cancelled" if watch.cancelled() else f"failed: {watch.exception()!r}"
        error = ProducerClosedError(
            f"the record was not sent: the task that waits for the metadata of topic "
            f"{topic.name!r} {cause}"
        )
        while topic.parked:
            self._fail_first(topic, error)

    def _fail_first(self, topic: TopicBuffer, error: KafkaError) -> None:
        parked = topic.parked.popleft()
        self._accumulator.budget.give_back(parked.record.upper_bound)
        self._fail(topic, parked, error)
        self._some_left.set()

    def _fail(self, topic: TopicBuffer, parked: ParkedRecord, error: KafkaError) -> None:
        self._on_failed(topic.name)
        parked.receipt.fail(error)
        self.on_failed(error)
