"""One batch of records on its way to one partition (Java: ``ProducerBatch``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.wire.compression import Codec
from kafkaclient.wire.records import (
    BATCH_OVERHEAD,
    BatchBuilder,
    pack,
    record_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.batches.delivery import BatchResult
    from kafkaclient.producer.batches.direct_append import AppendSlot
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.record import Record

__all__ = ["NO_SEQUENCE", "BindingFacts", "CompressionRatio", "ProducerBatch"]

NO_SEQUENCE = -1
_INITIAL_CAPACITY = 1024
_LARGEST = 2**31 - 1
# How large a growing batch may be before compression, as a multiple of its limit after it.
_MOST_RAW = 4
# Java's CompressionRatioEstimator: rises at once, sinks slowly, so that a batch rarely outgrows
# what it was estimated at.
_RATIO_STEP_UP, _RATIO_STEP_DOWN, _ESTIMATE_MARGIN = 0.05, 0.005, 1.05


@dataclass(slots=True)
class BindingFacts:
    """How a batch came to its partition, and the load that was seen then.

    Times are the clock's, in seconds. The parts of a split share it.
    """

    bound_by: str | None = None
    bound_at: float | None = None
    queued_batches: int | None = None
    queued_bytes: int | None = None
    in_flight: int | None = None
    window: int | None = None
    broker: int = -1
    sent_at: float | None = None


class CompressionRatio:
    """The expected compressed size of a topic's batches as a part of the raw size."""

    __slots__ = ("value",)

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def observe(self, ratio: float) -> None:
        if ratio > self.value:
            self.value = max(self.value + _RATIO_STEP_UP, ratio)
        elif ratio < self.value:
            self.value = max(self.value - _RATIO_STEP_DOWN, ratio)


class ProducerBatch:
    """Records that travel together, from the first append to the batch_result.

    ``limit`` is the (estimated) size in bytes at which the batch is full; one without a partition
    goes on taking records up to ``elastic_limit`` until a broker takes it. The buffer starts small
    and grows; ``charged`` is what the batch holds of the buffer budget at the moment.
    """

    __slots__ = (
        "_codec",
        "_level",
        "_ratio",
        "_ratio_factor",
        "_raw_limit",
        "_sealed_size",
        "any_partition",
        "append_slot",
        "attempts",
        "base_sequence",
        "binding_facts",
        "builder",
        "charged",
        "closed",
        "compressing",
        "created",
        "credited_bytes",
        "in_flight",
        "last_error",
        "leader_epoch",
        "maybe_written",
        "no_linger",
        "producer_epoch",
        "producer_id",
        "queue",
        "raw_full",
        "ready_at",
        "rebindable",
        "result",
        "retries",
        "retry_at",
        "sealed",
        "sequence_order",
        "serial",
        "split_after_uncertain_write",
        "topic_id",
        "transactional",
    )

    def __init__(
        self,
        batch_result: BatchResult,
        queue: PartitionQueue,
        *,
        serial: int,
        created: float,
        limit: int,
        capacity: int,
        elastic_limit: int = 0,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        ratio: CompressionRatio | None = None,
    ) -> None:
        self.result = batch_result
        self.serial = serial
        """Order of creation over the whole producer; the parts of a split keep it."""
        self.created = created
        self.ready_at = created
        """When it has waited long enough for company."""
        self.builder = BatchBuilder(capacity)
        self.charged = 0
        self.queue = queue
        self.credited_bytes = 0
        """Bytes that its partition's share was credited with before it left."""
        self.rebindable = False
        """Whether its partition, if it has one, is not final yet (late binding)."""
        self.any_partition = False
        """Whether none of its records cares for its partition."""
        self.binding_facts: BindingFacts | None = None
        """How it came to its partition, while telemetry is recorded."""
        self.append_slot: AppendSlot | None = None
        """How the records that follow come in without being looked at one by one."""
        self.no_linger = False
        """It is not to wait for company, wherever that would be."""
        self.closed = False
        self.compressing = False
        """It is being compressed aside, or waits for its turn; see sealing.py."""
        self.sealed = False
        self._sealed_size = 0
        self.attempts = self.retries = 0
        self.retry_at = 0.0
        self.last_error: KafkaError | None = None
        self.in_flight = False
        self.maybe_written = False
        """An attempt ended without a clear answer."""
        self.split_after_uncertain_write = False
        """It is a part of a batch that may have been written as a whole."""
        self.topic_id: bytes | None = None
        """Which topic of its name there was at the last attempt."""
        self.leader_epoch = -1
        """The leader epoch known at the last attempt."""
        self.base_sequence = NO_SEQUENCE
        self.sequence_order = 0
        """How many batches of its partition were numbered before it."""
        self.producer_id = self.producer_epoch = -1
        self._codec, self._level = codec, level
        self.transactional = False
        self._ratio = ratio or CompressionRatio()
        self._ratio_factor = 1.0 if codec is Codec.NONE else self._ratio.value * _ESTIMATE_MARGIN
        self.raw_full = self._raw_size_of(limit)
        """The size before compression from which on the batch is ready."""
        # However well it compresses: that is done in one go, and takes its time.
        raw_limit = min(self._raw_size_of(elastic_limit), _MOST_RAW * elastic_limit)
        self._raw_limit = max(self.raw_full, raw_limit)

    def __repr__(self) -> str:
        batch_result = self.result
        where = f"{batch_result.topic}-{batch_result.partition}"
        return (
            f"<ProducerBatch #{self.serial} {where} records={self.count} bytes={self.size} "
            f"attempts={self.attempts} sequence={self.base_sequence} full={self.full}>"
        )

    def _raw_size_of(self, size: int) -> int:
        """How large the batch is before compression when it has the given size on the wire."""
        raw = BATCH_OVERHEAD + int((size - BATCH_OVERHEAD) / self._ratio_factor)
        return min(raw, _LARGEST)

    # --- filling ------------------------------------------------------------------------------

    @staticmethod
    def first_capacity(limit: int, upper_bound: int, usual: int = 0) -> int:
        """How large the buffer of a new batch starts whose first record needs ``upper_bound``:
        small, as there may be thousands of quiet topics, but for a queue whose last batch had
        ``usual`` bytes."""
        return max(min(limit, _INITIAL_CAPACITY), upper_bound, usual)

    def append(self, record: Record) -> bool:
        """Add a record if the buffer has room for it as it is."""
        timestamp, key, value, headers = record[:4]
        if self.closed or not self.builder.append(timestamp, key, value, headers):
            return False
        self.result.count += 1
        return True

    def growth_for(self, record: Record) -> tuple[int, int] | None:
        """(least, best) bytes by which the buffer must grow to take a record :meth:`append` did
        not; None when the record does not belong into this batch any more."""
        if self.closed:
            return None
        builder = self.builder
        delta = record.timestamp - builder.base_timestamp
        needed = builder.size + record_size(
            builder.count, delta, record.key, record.value, record.headers
        )
        if needed > self._raw_limit:
            return None
        best = max(2 * builder.capacity, self.queue.typical_batch_size)
        best = max(needed, min(best, self._raw_limit))
        return needed - builder.capacity, best - builder.capacity

    @property
    def count(self) -> int:
        return self.result.count

    @property
    def size(self) -> int:
        """Bytes on the wire: exact once sealed, before that as estimated from the last batches."""
        if self.sealed:
            return self._sealed_size
        size = self.builder.size
        if self._ratio_factor == 1.0:
            return size
        return BATCH_OVERHEAD + int((size - BATCH_OVERHEAD) * self._ratio_factor)

    @property
    def raw_size(self) -> int:
        """Bytes before compression."""
        return self.builder.size

    @property
    def full(self) -> bool:
        # What is set aside for a partition takes as much as the partition is owed.
        set_aside = self.rebindable and not self.queue.unbound
        return self.closed or self.builder.size >= (self._raw_limit if set_aside else self.raw_full)

    @property
    def large(self) -> bool:
        """Whether the batch has grown to half of what it may grow to without a broker."""
        return self._raw_limit > self.raw_full and self.builder.size >= self._raw_limit // 2

    def bind(self, queue: PartitionQueue) -> None:
        """The batch has its partition, or none again."""
        if self.append_slot is not None:
            self.invalidate_append_slot()
        self.rebindable = queue.unbound
        self.credited_bytes = 0
        self.queue = queue
        self.result.partition = queue.partition

    def close(self) -> None:
        """Take no more records; from now on the batch counts as full."""
        self.closed = True
        if self.append_slot is not None:
            self.invalidate_append_slot()

    def invalidate_append_slot(self) -> None:
        """Have every further record looked at on its own."""
        if self.append_slot is not None:
            self.append_slot.invalidate()
            self.append_slot = None

    # --- leaving ------------------------------------------------------------------------------

    def seal(self) -> None:
        """Compress, and fix everything but producer id, epoch and sequence. Idempotent."""
        if not self.sealed:
            self.close()
            self.end_compression(pack(self._codec, self.builder.close(), self._level))

    def begin_compression(self) -> Callable[[], bytearray | None]:
        """Close the batch. Returns the work, which any thread may do, and whose result is for
        :meth:`end_compression`."""
        self.close()
        self.compressing = True
        return partial(pack, self._codec, self.builder.close(), self._level)

    def end_compression(self, packed: bytearray | None) -> None:
        raw = self._sealed_size = self.builder.size
        self.compressing, self.sealed = False, True
        if packed is not None:
            self.builder.replace(self._codec, packed)
            self._sealed_size = len(packed)
        if self._codec is not Codec.NONE and raw > BATCH_OVERHEAD:
            self._ratio.observe((self._sealed_size - BATCH_OVERHEAD) / (raw - BATCH_OVERHEAD))

    def stamp(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Give the sealed batch its identity; a retry keeps it, an epoch bump gives a new one."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.builder.stamp(producer_id, producer_epoch, base_sequence, self.transactional)

    @property
    def stamped(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    def reset_attempts(self) -> None:
        """Go back to before the first attempt: no log has the batch, nor will one have it."""
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.retry_at = 0.0
        self.maybe_written = self.split_after_uncertain_write = False

    def reset_compression_estimate(self) -> None:
        """It was estimated too small: the next batches are not (Java does the same)."""
        self._ratio.value = 1.0

    @property
    def sent_to_deleted_topic(self) -> bool:
        """Whether the last attempt went to a topic that was deleted and created anew since."""
        return self.topic_id is not None and self.topic_id != self.queue.topic.topic_id

    def buffer(self) -> memoryview:
        return self.builder.buffer()
