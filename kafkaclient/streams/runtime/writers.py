"""Writes a task's changes, emitted records and offsets: at least once, or exactly once.

The order is the same for both: the emitted records, the changes, the input offset. A writer is not
used again after an error.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.producer.batches.record import RawRecord, checked_record
from kafkaclient.types import NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.streams.membership.commit_gate import CommitGate
    from kafkaclient.streams.membership.group_offsets import GroupOffsets
    from kafkaclient.types import HeadersLike

_MAX_CHANGES_PER_TURN = 1_000  # about 5 ms; then the event loop runs other tasks
_STOP_TIMEOUT_S = 5.0  # records in flight after that belong to an aborted transaction


class OutgoingRecord(NamedTuple):
    """A record that a task emits: the arguments of :meth:`kafkaclient.Producer.send`."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp_ms: int | None
    headers: HeadersLike


class Writer:
    """Writes for one task."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def start(self) -> None:
        """Exactly once: fence the task's earlier owners."""

    async def begin(self) -> None:
        """Begin the records of a commit interval. Exactly once: begin a transaction."""

    def checked(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record for a later :meth:`send`, with mutable buffers copied. Raises
        InvalidRecordError for a record that is invalid even without metadata."""
        made = checked_record(self._producer.config, time.time, RawRecord(*record))
        return record._replace(value=made.value, key=made.key, headers=made.headers)

    async def send(self, record: OutgoingRecord) -> Delivery:
        """Send a record that the task emits."""
        topic, value, key, partition, timestamp_ms, headers = record
        return await self._producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def commit(
        self,
        changes: Mapping[TopicPartition, Mapping[bytes, bytes | None]],
        offsets: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int | None]:
        """Write the changes (changelog -> changes) and commit the offsets. Returns the offset after
        the last change of each changelog. None if there were no changes, or the broker returned no
        offset."""
        deliveries = []
        last: dict[TopicPartition, Delivery] = {}
        for changelog, pairs in changes.items():
            topic, partition = changelog
            for key, value in pairs.items():
                sent = await self._producer.send(topic, value, key, partition=partition)
                deliveries.append(sent)
                # A partition's records are written in the order of sending.
                last[changelog] = sent
                if len(deliveries) % _MAX_CHANGES_PER_TURN == 0:
                    await asyncio.sleep(0)
        await self._commit_offsets(deliveries, offsets)
        positions: dict[TopicPartition, int | None] = dict.fromkeys(changes)
        for changelog, delivery in last.items():
            found = await delivery
            positions[changelog] = None if found.offset == NO_OFFSET else found.offset + 1
        return positions

    async def _commit_offsets(
        self, changes: Sequence[Delivery], offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Wait until everything is written, and commit."""
        raise NotImplementedError

    async def committed(
        self, sources: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offset of each input partition. None if there is none."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Exactly once: abort the open transaction."""


class ExactlyOnceWriter(Writer):
    """Uses the task's own producer, with one transaction per commit interval."""

    def __init__(self, producer: Producer, gate: CommitGate) -> None:
        super().__init__(producer)
        self._gate = gate

    async def start(self) -> None:
        await self._producer.start()

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def _commit_offsets(
        self, changes: Sequence[Delivery], offsets: Mapping[TopicPartition, int]
    ) -> None:
        async with self._gate.commit() as group:
            await self._producer.send_offsets_to_transaction(offsets, group)
        await self._producer.commit_transaction()

    async def committed(
        self, sources: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        found = await self._producer.committed(self._gate.group.group_id, sources)
        return {source: None if each is None else each.offset for source, each in found.items()}

    async def stop(self) -> None:
        await self._producer.stop(_STOP_TIMEOUT_S)


class AtLeastOnceWriter(Writer):
    """Uses the producer that all tasks of the instance share."""

    def __init__(self, producer: Producer, offsets: GroupOffsets) -> None:
        super().__init__(producer)
        self._offsets = offsets
        self._emitted: list[Delivery] = []

    async def send(self, record: OutgoingRecord) -> Delivery:
        delivery = await super().send(record)
        self._emitted.append(delivery)
        return delivery

    async def _commit_offsets(
        self, changes: Sequence[Delivery], offsets: Mapping[TopicPartition, int]
    ) -> None:
        emitted, self._emitted = self._emitted, []
        await self._producer.flush()
        for delivery in (*emitted, *changes):
            await delivery
        await self._offsets.commit(offsets)

    async def committed(
        self, sources: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        return await self._offsets.committed(sources)
