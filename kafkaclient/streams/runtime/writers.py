"""How a task's changes, what it emits and its offsets are written: at least once, or exactly once.

Both have the same order: everything that was emitted, the changes, the offset of what was read. A
writer of which anything failed is not used again.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiokafka import TopicPartition as ConsumerPartition

from kafkaclient.producer.batches.record import RawRecord, checked_record
from kafkaclient.types import NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiokafka import AIOKafkaConsumer

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.types import ConsumerGroupMetadata, HeadersLike

__all__ = ["AtLeastOnceWriter", "ExactlyOnceWriter", "OutgoingRecord", "Writer"]

_CHANGES_A_TURN = 1_000
"""About 5 ms of the event loop's time; then others get their turn."""
_STOP_TIMEOUT = 5.0
"""Seconds: what is still on its way then belongs to a transaction that is aborted."""


class OutgoingRecord(NamedTuple):
    """The arguments of :meth:`kafkaclient.Producer.send` for a record that a task emits."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp_ms: int | None
    headers: HeadersLike


class Writer(Protocol):
    """One task's."""

    async def start(self) -> None:
        """From its return on no earlier owner of the task can write, if that can be had."""
        ...

    async def begin(self) -> None:
        """Records that belong together follow."""
        ...

    def checked(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record for a later :meth:`send`, with buffers copied. Raises InvalidRecordError for
        a record that can be refused without metadata."""
        ...

    async def send(self, record: OutgoingRecord) -> None:
        """Hand over a record that the task emits."""
        ...

    async def commit(
        self,
        changes: Mapping[bytes, bytes | None],
        changelog: TopicPartition,
        source: TopicPartition,
        offset: int,
    ) -> int | None:
        """Have all of it written, and ``offset`` committed; returns the offset in the changelog
        that follows the last change, None when there was none, or the broker did not say."""
        ...

    async def committed(self, source: TopicPartition) -> int | None:
        """The group's offset; None when there is none."""
        ...

    async def stop(self) -> None:
        """What was begun and not committed is undone, if that can be had."""
        ...


class _ProducerWriter:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def checked(self, record: OutgoingRecord) -> OutgoingRecord:
        made = checked_record(self._producer.config, time.time, RawRecord(*record))
        return record._replace(value=made.value, key=made.key, headers=made.headers)

    async def _send(self, record: OutgoingRecord) -> Delivery:
        topic, value, key, partition, timestamp_ms, headers = record
        return await self._producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )


class ExactlyOnceWriter(_ProducerWriter):
    """A producer, and a transaction for each commit interval."""

    def __init__(self, producer: Producer, group: Callable[[], ConsumerGroupMetadata]) -> None:
        super().__init__(producer)
        self._group = group

    async def start(self) -> None:
        await self._producer.start()

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def send(self, record: OutgoingRecord) -> None:
        await self._send(record)

    async def commit(
        self,
        changes: Mapping[bytes, bytes | None],
        changelog: TopicPartition,
        source: TopicPartition,
        offset: int,
    ) -> int | None:
        deliveries = await _send_changes(self._producer, changes, changelog)
        last = deliveries[-1] if deliveries else None
        await self._producer.send_offsets_to_transaction({source: offset}, self._group())
        await self._producer.commit_transaction()
        return await _after(last)

    async def committed(self, source: TopicPartition) -> int | None:
        found = await self._producer.committed(self._group().group_id, [source])
        offset = found[source]
        return None if offset is None else offset.offset

    async def stop(self) -> None:
        await self._producer.stop(_STOP_TIMEOUT)


class AtLeastOnceWriter(_ProducerWriter):
    """One view of a producer that all tasks of the instance share."""

    def __init__(self, producer: Producer, consumer: AIOKafkaConsumer) -> None:
        super().__init__(producer)
        self._consumer = consumer
        self._deliveries: list[Delivery] = []

    async def start(self) -> None:
        """The producer runs already."""

    async def begin(self) -> None:
        """Nothing binds the records together."""

    async def send(self, record: OutgoingRecord) -> None:
        self._deliveries.append(await self._send(record))

    async def commit(
        self,
        changes: Mapping[bytes, bytes | None],
        changelog: TopicPartition,
        source: TopicPartition,
        offset: int,
    ) -> int | None:
        emitted, self._deliveries = self._deliveries, []
        deliveries = await _send_changes(self._producer, changes, changelog)
        last = deliveries[-1] if deliveries else None
        await self._producer.flush()
        for delivery in (*emitted, *deliveries):
            await delivery
        await self._consumer.commit({ConsumerPartition(*source): offset})
        return await _after(last)

    async def committed(self, source: TopicPartition) -> int | None:
        found: int | None = await self._consumer.committed(ConsumerPartition(*source))
        return found

    async def stop(self) -> None:
        """The producer is not this task's."""
        self._deliveries = []


async def _send_changes(
    producer: Producer, changes: Mapping[bytes, bytes | None], changelog: TopicPartition
) -> list[Delivery]:
    deliveries = []
    for key, value in changes.items():
        deliveries.append(
            await producer.send(changelog.topic, value, key, partition=changelog.partition)
        )
        if len(deliveries) % _CHANGES_A_TURN == 0:
            await asyncio.sleep(0)
    return deliveries


async def _after(last: Delivery | None) -> int | None:
    """A partition's records are written in the order in which they were sent."""
    if last is None:
        return None
    written = await last
    return None if written.offset == NO_OFFSET else written.offset + 1
