"""A topic's logs as their leaders keep them, with the rules of idempotent producers.

Behavior
    KIP-98 and KIP-360, Java's ``UnifiedLog``, ``ProducerStateManager``, ``ProducerAppendInfo``: the
    log remembers the last five batches of each producer id. It answers a duplicate of such a batch
    with the first offset of the batch. Any other batch must continue the sequence, which wraps from
    2^31-1 to 0. A newer producer epoch must start at sequence 0; an older epoch is refused. A
    producer id that the log does not know may start at any sequence.

    Transactions: a marker ends a producer's transaction. It uses an offset, and with transactions
    v2 it increases the producer epoch. Consumers with ``read_committed`` do not get records of open
    or aborted transactions, and no records from the last stable offset on, where the oldest open
    transaction begins.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import crc32c

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import ProtocolError
from kafkaclient.wire.record_reader import (
    CONTROL,
    CRC_START,
    BatchHeader,
    batch_header,
    iter_records,
    verify_crc,
)
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from uuid import UUID


# --- A partition's log as its leader keeps it, with the rules of idempotent producers -------------

_REMEMBERED_BATCHES = 5
_MAX_SEQUENCE = 2**31 - 1
_NO_PRODUCER = -1
_NO_SEQUENCE = -1
_PLACE, _EPOCH = struct.Struct(">q"), struct.Struct(">i")
_MARKER_KEY, _MARKER_VALUE = struct.Struct(">hh"), struct.Struct(">hi")
_CRC_AT = 17


class FakeRecord(NamedTuple):
    """A record; ``timestamp`` in milliseconds. Without idempotence the last fields are -1."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    producer_epoch: int
    sequence: int


class Appended(NamedTuple):
    """The leader's answer. ``duplicate``: the batch was written before."""

    base_offset: int
    duplicate: bool


class RefusedError(Exception):
    """A broker refuses a request, or a part of it. ``fields`` has more fields of the response."""

    def __init__(self, code: int, message: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.code = code
        told = {} if message is None else {"error_message": message}
        self.fields: dict[str, Any] = {"error_code": code, **told, **fields}


class ScriptedError(RefusedError):
    """The error that a test has set for a partition."""

    append = False
    """Whether the batch is written nevertheless."""


class Marker(NamedTuple):
    """The marker at the end of a producer's transaction."""

    offset: int
    producer_id: int
    producer_epoch: int
    commit: bool


class _Written(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


class _Producer:
    """The log's state of one producer id."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[_Written] = deque(maxlen=_REMEMBERED_BATCHES)


class PartitionLog:
    """The batches of one partition. The headers in ``batches`` contain the offsets, as on disk."""

    def __init__(self) -> None:
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.start_offset = 0
        """The log start offset: records before it are deleted."""
        self.end_offset = 0
        """The offset of the next record."""
        self.epochs: list[tuple[int, int]] = []
        """The leader epochs after the first, each with its first offset."""
        self.markers: list[Marker] = []
        self._open: dict[int, int] = {}
        """Producer id -> the first offset of its open transaction."""
        self.aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker)"""
        self._producers: dict[int, _Producer] = {}

    def append(self, data: bytes, max_message_bytes: int) -> Appended:
        """Validate and append one batch. Raises :class:`RefusedError`."""
        header = self._validated(data, max_message_bytes)
        producer = None
        if header.producer_id != _NO_PRODUCER:
            producer = self._producers.get(header.producer_id)
            duplicate = producer and _find_duplicate(producer, header)
            if duplicate:
                return Appended(duplicate.base_offset, duplicate=True)
            if producer is not None:
                _check_sequence(producer, header)
            if producer is None or producer.epoch != header.producer_epoch:
                producer = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        base_offset = self.end_offset
        if producer is not None:
            producer.batches.append(_Written(header.base_sequence, _last(header), base_offset))
        if header.is_transactional:
            self._open.setdefault(header.producer_id, base_offset)
        self.batches.append((header._replace(base_offset=base_offset), bytes(data)))
        self.end_offset += header.record_count
        return Appended(base_offset, duplicate=False)

    def records(self) -> list[FakeRecord]:
        """Every record, decompressed, in order."""
        return [
            FakeRecord(
                header.base_offset + record.offset_delta,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
                header.producer_id,
                header.producer_epoch,
                _NO_SEQUENCE
                if header.producer_id == _NO_PRODUCER
                else _advance(header.base_sequence, record.offset_delta),
            )
            for header, data in self.batches
            for record in iter_records(data)
        ]

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Write the marker that ends a transaction."""
        first = self._open.pop(producer_id, None)
        if first is not None and not commit:
            self.aborted.append((producer_id, first, self.end_offset))
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch < epoch:
            self._producers[producer_id] = _Producer(epoch)
        self.markers.append(Marker(self.end_offset, producer_id, epoch, commit))
        self.end_offset += 1

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction; without one, the end offset."""
        return min(self._open.values(), default=self.end_offset)

    def committed(self) -> list[FakeRecord]:
        """The records that a consumer with ``isolation.level=read_committed`` gets."""
        return [
            record
            for record in self.records()
            if record.offset < self.last_stable_offset
            and not any(
                record.producer_id == producer_id and first <= record.offset < end
                for producer_id, first, end in self.aborted
            )
        ]

    def stored(self, offset: int, end: int) -> list[bytes]:
        """The batches between two offsets as on disk, including transaction markers."""
        batches = [
            (header.base_offset, header.base_offset + header.last_offset_delta, data)
            for header, data in self.batches
        ]
        batches += [(m.offset, m.offset, _marker_batch(m)) for m in self.markers]
        return [
            _PLACE.pack(base) + data[8:12] + _EPOCH.pack(self.epoch_at(base)) + data[16:]
            for base, last, data in sorted(batches)
            if last >= offset and base < end
        ]

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of a record."""
        return next((e for e, start in reversed(self.epochs) if start <= offset), 0)

    def end_of(self, epoch: int) -> int:
        """The offset behind the last record of an epoch, as OffsetForLeaderEpoch tells it."""
        return next((start for e, start in self.epochs if e > epoch), self.end_offset)

    def truncate(self, end: int) -> None:
        """Remove the batches from an offset on."""
        self.batches = [batch for batch in self.batches if batch[0].base_offset < end]
        self.markers = [marker for marker in self.markers if marker.offset < end]
        self.end_offset = end
        self.epochs = [each for each in self.epochs if each[1] <= end]

    def forget_producers(self) -> None:
        """Delete the producers' state, as retention or an expired producer id does."""
        self._producers.clear()

    @staticmethod
    def _validated(data: bytes, max_message_bytes: int) -> BatchHeader:
        try:
            header = batch_header(data)
        except ProtocolError as error:
            raise RefusedError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if header.size > max_message_bytes:
            raise RefusedError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size in the append is {header.size} bytes which exceeds the "
                f"maximum configured value of {max_message_bytes}.",
            )
        if not verify_crc(data):
            raise RefusedError(
                ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})"
            )
        problem = _invalid(header, data)
        if problem:
            raise RefusedError(ErrorCode.INVALID_RECORD, problem)
        return header


def _marker_batch(marker: Marker) -> bytes:
    """The control batch of a transaction marker."""
    builder = BatchBuilder(1000)
    builder.append(0, _MARKER_KEY.pack(0, int(marker.commit)), _MARKER_VALUE.pack(0, 0))
    builder.seal()
    builder.stamp(marker.producer_id, marker.producer_epoch, _NO_SEQUENCE, transactional=True)
    batch = bytearray(builder.buffer())
    batch[CRC_START + 1] |= CONTROL
    struct.pack_into(">I", batch, _CRC_AT, crc32c.crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def _invalid(header: BatchHeader, data: bytes) -> str | None:
    """Why the batch is invalid; None if it is valid."""
    if header.size != len(data):
        return "Produce requests must contain exactly one record batch per partition"
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return f"{header.record_count} records, last offset delta {header.last_offset_delta}"
    if header.producer_id != _NO_PRODUCER and header.base_sequence < 0:
        return f"Invalid sequence number {header.base_sequence} in a batch with a producer id"
    try:
        deltas = [record.offset_delta for record in iter_records(data)]
    except ProtocolError as error:
        return str(error)
    if deltas != list(range(header.record_count)):
        return "offset deltas of the records are not consecutive from 0"
    return None


def _find_duplicate(producer: _Producer, header: BatchHeader) -> _Written | None:
    if producer.epoch != header.producer_epoch:
        return None
    span = (header.base_sequence, _last(header))
    return next((written for written in producer.batches if written[:2] == span), None)


def _check_sequence(producer: _Producer, header: BatchHeader) -> None:
    if header.producer_epoch < producer.epoch:
        raise RefusedError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {header.producer_id} is {header.producer_epoch}, which is smaller "
            f"than the last seen epoch {producer.epoch}",
        )
    expected = 0
    if header.producer_epoch == producer.epoch and producer.batches:
        expected = _advance(producer.batches[-1].last_sequence, 1)
    if header.base_sequence != expected:
        raise RefusedError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id}, epoch "
            f"{header.producer_epoch}: got {header.base_sequence}, expected {expected}",
        )


def _last(header: BatchHeader) -> int:
    return _advance(header.base_sequence, header.last_offset_delta)


def _advance(sequence: int, records: int) -> int:
    return (sequence + records) & _MAX_SEQUENCE


# --- The fake cluster's topics and partitions -----------------------------------------------------

NO_LEADER = -1

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The topics that brokers call internal."""

_MAX_MESSAGE_BYTES = 1_048_588  # Kafka's default of max.message.bytes


@dataclass(slots=True)
class FakePartition:
    """A partition with one log for all replicas. ``leader`` is -1 without a leader."""

    topic: str
    index: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    log: PartitionLog = field(default_factory=PartitionLog)
    moving_to: list[int] = field(default_factory=list)
    """The target replicas of an ongoing reassignment, else empty."""
    moving_from: list[int] = field(default_factory=list)
    """The replicas before an ongoing reassignment, else empty."""
    copied: dict[int, int] = field(default_factory=dict)
    """The number of records of each replica that is being added or has lost others."""

    def end_offset_at(self, node_id: int) -> int:
        """The log end offset of a replica."""
        adding = self.moving_to and node_id not in self.moving_from
        return self.copied.get(node_id, 0 if adding else self.log.end_offset)

    def elect(self, node_id: int) -> None:
        """Make a broker the leader (-1: no leader) under a new leader epoch."""
        self.leader = node_id
        self.leader_epoch += 1
        self.log.epochs.append((self.leader_epoch, self.log.end_offset))

    def finish_reassignment(self) -> None:
        """Complete an ongoing reassignment, if there is one."""
        if self.moving_to:
            self.replicas, self.isr = self.moving_to, list(self.moving_to)
            self.moving_to, self.moving_from, self.copied = [], [], {}
            if self.leader not in self.replicas:
                self.elect(self.replicas[0])


@dataclass(slots=True)
class FakeTopic:
    """A topic. Of its ``configs`` the two that are properties are in force."""

    name: str
    topic_id: UUID
    partitions: list[FakePartition] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def max_message_bytes(self) -> int:
        return int(self.configs.get("max.message.bytes") or _MAX_MESSAGE_BYTES)

    @property
    def min_insync_replicas(self) -> int:
        return int(self.configs.get("min.insync.replicas") or 1)


def is_valid_topic_name(name: str) -> bool:
    """Java's ``Topic.isValid``."""
    return name not in {".", ".."} and re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) is not None
