"""Writes the tasks' emitted records, changes and offsets; exactly once, in transactions.

All tasks of an instance share one producer, and so its connections (KIP-447).
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import (
    KafkaError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerStateError,
    RecordTooLargeError,
    StreamsError,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from kafkaclient.producer.batches.record import RawRecord, checked_record
from kafkaclient.streams.key_value_store import LARGE
from kafkaclient.types import NO_OFFSET, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from kafkaclient.config import ProducerConfig
    from kafkaclient.group.commit_gate import CommitGate
    from kafkaclient.group.connection import GroupOffsets
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.streams.runtime.dead_transactions import DeadTransactions
    from kafkaclient.types import HeadersLike

_MAX_CHANGES_PER_TURN = 1_000  # about 5 ms; then the event loop runs other tasks
STOP_TIMEOUT_S = 5.0  # records in flight after that belong to an aborted transaction
_RECORD_OVERHEAD = 128  # bytes of a batch with one record, without key and value


class OutgoingRecord(NamedTuple):
    """A checked record that a task emits: the arguments of :meth:`kafkaclient.Producer.send`."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp_ms: int | None
    headers: HeadersLike


Changes: TypeAlias = "Mapping[TopicPartition, Mapping[bytes, bytes | None]]"
Offsets: TypeAlias = "Mapping[TopicPartition, OffsetAndMetadata]"
SentChanges: TypeAlias = "dict[TopicPartition, dict[bytes, Delivery]]"


class Work(NamedTuple):
    """What one task has done since its last commit, up to the end of a record."""

    offsets: Mapping[TopicPartition, int]
    """Input partition -> next offset to process."""
    changes: Changes
    """Changelog -> changes."""
    topic_ids: Mapping[TopicPartition, UUID | None] = MappingProxyType({})
    """Of which topics the offsets are, if that is known: a topic that is created again does not get
    the offsets of the old one."""


class RefusedChangeError(StreamsError):
    """The broker refused changes of stores because of their size. ``changes``: (changelog, key) ->
    what to say of each, at least one."""

    def __init__(self, changes: Mapping[tuple[TopicPartition, bytes], str]) -> None:
        super().__init__(next(iter(changes.values())))
        self.changes = changes


class Output(ABC):
    """Where an instance writes. One producer, made by ``new_producer``, serves all tasks.

    A failed commit is followed by :meth:`abandon`, and then by :meth:`start`. ``offsets`` does not
    depend on the producer: a task can become active meanwhile.
    """

    is_transactional = False
    """Whether a failed commit undoes what was sent for it."""

    def __init__(
        self,
        config: ProducerConfig,
        new_producer: Callable[[], Producer],
        offsets: GroupOffsets,
        gate: CommitGate,
    ) -> None:
        self._config = config
        self._new_producer = new_producer
        self._offsets = offsets
        self._gate = gate
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()
        self._started = asyncio.Event()
        largest = min(config.buffer_memory, config.max_request_size) - _RECORD_OVERHEAD
        self.small_bytes = min(LARGE, largest)
        """A record without headers needs no check of its size, if its key and value have at most
        so many bytes together."""

    @property
    def max_change_bytes(self) -> int:
        """How large the key and value of a store's change may be together."""
        return self._config.max_request_size - _RECORD_OVERHEAD

    async def start(self) -> None:
        """Start the producer, unless it runs already. Raises as :meth:`kafkaclient.Producer.start`.
        Exactly once: fences an earlier producer of this process."""
        async with self._starting:  # each task's committer starts it again
            if self._producer is None:
                producer = self._new_producer()
                await producer.start()
                self._producer = producer
                self._started.set()

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the producer. Exactly once: an open transaction is aborted."""
        producer, self._producer = self._producer, None
        self._started.clear()
        if producer is not None:
            await producer.stop(timeout_s)

    @abstractmethod
    async def abandon(self) -> None:
        """Have nothing of the failed commit in the next one."""

    # --- emitted records ------------------------------------------------------------------------

    def checked(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record for a later :meth:`send`, with mutable buffers copied. Raises
        InvalidRecordError for a record that is invalid even without metadata."""
        made = checked_record(self._config, time.time, RawRecord(*record))
        return record._replace(value=made.value, key=made.key, headers=made.headers)

    async def prepare(self, records: Sequence[OutgoingRecord]) -> None:
        """Wait until the records' topics are known, so that :meth:`send` needs no metadata.

        Raises PartitionOutOfRangeError for a partition that does not exist, and
        MetadataTimeoutError, with the topic's name, after ``max.block.ms``.
        """
        wanted = dict.fromkeys([record.topic for record in records], -1)
        for record in records:
            if record.partition is not None:
                wanted[record.topic] = max(record.partition, wanted[record.topic])
        for topic, highest in wanted.items():
            count = await self._count_partitions(topic, highest)
            if highest >= count:
                raise PartitionOutOfRangeError(
                    f"topic {topic!r} has no partition {highest}: it has {count} partitions"
                )

    async def _count_partitions(self, topic: str, highest: int) -> int:
        while True:
            await self._started.wait()
            producer = self._running()
            try:
                known = producer.known_partitions(topic) or await producer.partitions_for(topic)
                if highest >= len(known):  # the topic may have more partitions by now
                    await producer.refresh_metadata()
                    known = producer.known_partitions(topic) or known
                return len(known)
            except ProducerStateError:
                if producer is self._producer:
                    raise

    async def begin(self) -> None:  # noqa: B027 - not abstract: nothing to do at least once
        """Await this before the first record of a commit is sent."""

    def send_nowait(self, record: OutgoingRecord) -> Delivery:
        """Send a record whose topic is known. Raises KafkaError if that is not possible at once:
        :meth:`send` waits for it, or raises the same."""
        topic, value, key, partition, timestamp_ms, headers = record
        return (self._producer or self._running()).send_nowait(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def send(self, record: OutgoingRecord) -> Delivery:
        """Send a record whose topic is known; waits until the producer's buffer has room."""
        topic, value, key, partition, timestamp_ms, headers = record
        return await self._running().send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    # --- commits --------------------------------------------------------------------------------

    async def commit(
        self, work: Sequence[Work], emitted: Sequence[Delivery], times_lost: int
    ) -> dict[TopicPartition, int]:
        """Write the changes, wait until all records are written, and commit the offsets, unless
        the member has lost its partitions since the commit gate had ``times_lost``. ``emitted``:
        what was sent for the work. Returns
        changelog -> offset behind its last change: not behind the transaction's marker, which may
        not be in the log yet. Changelogs for which the broker returned no offset are missing."""
        producer = self._running()
        changes = {each: found for one in work for each, found in one.changes.items() if found}
        offsets = {
            each: OffsetAndMetadata(offset, topic_id=one.topic_ids.get(each))
            for one in work
            for each, offset in one.offsets.items()
        }
        sent: SentChanges = {each: {} for each in changes}
        try:
            await self._write(producer, emitted, changes, sent, times_lost)
            await self._finish(producer, offsets, times_lost)
        except BaseException as error:
            for deliveries in sent.values():
                forget(deliveries.values())
            if isinstance(error, KafkaError) and (refused := _too_large(error, changes, sent)):
                raise RefusedChangeError(refused) from error
            raise
        positions = {}
        for changelog, deliveries in sent.items():
            # A partition's records are written in the order of sending.
            last = (await next(reversed(deliveries.values()))).offset
            if last != NO_OFFSET:
                positions[changelog] = last + 1
        return positions

    async def _write(
        self,
        producer: Producer,
        emitted: Sequence[Delivery],
        changes: Changes,
        sent: SentChanges,
        times_lost: int,
    ) -> None:
        """Send the changes, and note their deliveries in ``sent``."""
        total = 0
        for changelog, found in changes.items():
            topic, partition = changelog
            deliveries = sent[changelog]
            for key, value in found.items():
                deliveries[key] = await producer.send(topic, value, key, partition=partition)
                total += 1
                if total % _MAX_CHANGES_PER_TURN == 0:
                    await asyncio.sleep(0)

    @abstractmethod
    async def _finish(self, producer: Producer, offsets: Offsets, times_lost: int) -> None:
        """Commit the offsets, when everything is written."""

    async def fetch_committed(
        self, sources: Sequence[TopicPartition], topic_ids: Mapping[str, UUID]
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offset of each input partition, of the topics with these ids. None
        if there is none. Raises UnknownTopicError if the coordinator does not know such a topic."""
        if any(each.topic not in topic_ids for each in sources):
            return await self._offsets.committed(sources)
        try:
            found = await self._offsets.committed(sources, topic_ids)
        except UnsupportedVersionError:  # the coordinator has names only
            return await self._offsets.committed(sources)
        if unknown := [each for each in sources if each not in found]:
            what = "reading the application's offsets: "
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_ID, what + ", ".join(map(str, unknown)))
        return found

    def _running(self) -> Producer:
        if self._producer is None:
            raise ProducerClosedError("the application's producer is not running")
        return self._producer


class TransactionalOutput(Output):
    """Exactly once: each commit is a transaction. After a failed one, a new producer with the same
    transactional id ends it, whatever its state is."""

    is_transactional = True

    def __init__(
        self,
        config: ProducerConfig,
        new_producer: Callable[[], Producer],
        offsets: GroupOffsets,
        gate: CommitGate,
        dead: DeadTransactions,
    ) -> None:
        super().__init__(config, new_producer, offsets, gate)
        self._dead = dead

    async def begin(self) -> None:
        producer = self._running()
        if not producer.in_transaction:
            await producer.begin_transaction()

    async def commit(
        self, work: Sequence[Work], emitted: Sequence[Delivery], times_lost: int
    ) -> dict[TopicPartition, int]:
        await self.begin()
        return await super().commit(work, emitted, times_lost)

    async def _finish(self, producer: Producer, offsets: Offsets, times_lost: int) -> None:
        async with self._gate.commit(times_lost) as group:
            await producer.send_offsets_to_transaction(offsets, group)
        await producer.commit_transaction()

    async def fetch_committed(
        self, sources: Sequence[TopicPartition], topic_ids: Mapping[str, UUID]
    ) -> dict[TopicPartition, int | None]:
        await self._started.wait()  # that ends this process's own open transaction
        self._dead.search()  # it may be what the offset waits for
        return await super().fetch_committed(sources, topic_ids)

    async def abandon(self) -> None:
        await self.stop()


def forget(deliveries: Iterable[Delivery]) -> None:
    """Have the producer not log the failures of records: another error tells of them."""
    for delivery in deliveries:
        with suppress(asyncio.InvalidStateError):
            delivery.exception()


def _too_large(
    error: KafkaError, changes: Changes, sent: SentChanges
) -> dict[tuple[TopicPartition, bytes], str]:
    """The changes that the broker refused because of their size, if that is why the commit failed:
    (changelog, key) -> what to say of it."""
    cause = error.__cause__ if isinstance(error, TransactionAbortableError) else error
    if not isinstance(cause, RecordTooLargeError):
        return {}
    found = {}
    for changelog, deliveries in sent.items():
        topic, partition = changelog
        for key, delivery in deliveries.items():
            refusal = delivery.exception() if delivery.done() else None
            if isinstance(refusal, RecordTooLargeError):
                size = len(key) + len(changes[changelog][key] or b"")
                found[changelog, key] = (
                    f"a change of {size} bytes, with the key {key[:50]!r}, is too large for "
                    f"{topic}-{partition}, its store's changelog: {refusal} Raise "
                    "max.message.bytes of the topic, or store less under one key"
                )
    return found
