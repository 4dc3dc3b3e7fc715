"""One batch of records on its way to one partition (Java: ``ProducerBatch``)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.direct_append import AppendSlot
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.records import BATCH_OVERHEAD, BatchBuilder, pack, record_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.errors import KafkaError
    from kafkaclient.producer.batches.batch_result import BatchResult
    from kafkaclient.producer.batches.partition_queue import BufferShare, PartitionQueue
    from kafkaclient.producer.batches.record import Record

NO_SEQUENCE = -1
_LARGEST = 2**31 - 1
_MOST_RAW = 4  # the most bytes before compression, as a multiple of the limit after compression
_ESTIMATE_MARGIN = 1.05  # of the expected compressed size, as in Java
_NO_CODEC = CompressionType.NONE  # a member looked up in its Enum costs a Python call before 3.12


@dataclass(slots=True)
class BindingFacts:
    """How a batch came to its partition, and the load at that time.

    Times are the clock's, in seconds. The parts of a split batch share one object.
    """

    bound_by: str | None = None
    bound_at: float | None = None
    queued_batches: int | None = None
    queued_bytes: int | None = None
    in_flight: int | None = None
    window: int | None = None
    broker: int = -1
    sent_at: float | None = None


class ProducerBatch:
    """Records that travel together, from the first append to their outcome.

    ``limit`` is the (estimated) size in bytes at which the batch is full. A batch without a
    partition takes records up to ``elastic_limit`` until a broker takes the batch. The buffer
    starts small and grows. Only methods of this class assign the attributes of a batch.
    """

    __slots__ = (
        "_compression",
        "_ratio",
        "_ratio_factor",
        "_raw_limit",
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
        "lingers_until",
        "maybe_elsewhere",
        "maybe_written",
        "no_linger",
        "producer_epoch",
        "producer_id",
        "queue",
        "raw_full",
        "rebindable",
        "result",
        "retries",
        "retry_at",
        "sealed",
        "sealed_size",
        "sequence_order",
        "serial",
        "share",
        "split_after_uncertain_write",
        "topic_id",
        "transactional",
    )

    def __init__(  # noqa: PLR0915 - one attribute a statement
        self,
        batch_result: BatchResult,
        queue: PartitionQueue,
        *,
        serial: int,
        created: float,
        limit: int,
        capacity: int,
        elastic_limit: int = 0,
        compression: tuple[CompressionType, int | None] = (_NO_CODEC, None),
        rebindable: bool = False,
        transactional: bool = False,
    ) -> None:
        self.result = batch_result
        batch_result.partition = queue.partition
        self.serial = serial
        """Order of creation over the whole producer. The parts of a split keep it."""
        self.created = self.lingers_until = created
        """When the delivery timeout of the first record began, and when the batch has lingered."""
        self.builder = BatchBuilder(capacity)
        self.charged = capacity
        """Bytes of buffer memory that the batch holds at the moment."""
        self.queue = queue
        self.share = queue.share
        """The broker's share of the buffer memory that has these bytes."""
        self.share.held += capacity
        self.credited_bytes = 0
        """Bytes that the batch's partition was credited with before the batch was sent."""
        self.rebindable = rebindable
        """Whether the batch may yet go to another partition (late binding)."""
        self.any_partition = rebindable
        """Whether the partition of every record was left to the producer."""
        self.binding_facts: BindingFacts | None = None
        """How the batch came to its partition, if a hook wants batches."""
        self.append_slot: AppendSlot | None = None
        """The shortcut that appends later records without checking each of them."""
        self.no_linger = self.closed = self.sealed = self.in_flight = False
        self.compressing = False
        """Whether the batch is compressed in the background, or waits for that (compressor.py)."""
        self.sealed_size = 0
        """The exact bytes on the wire, once sealed."""
        self.attempts, self.retries, self.retry_at = 0, 0, 0.0
        self.last_error: KafkaError | None = None
        self.maybe_written = self.maybe_elsewhere = False
        """Whether an attempt ended without a clear answer: in this cluster, or in one that the
        client has left."""
        self.split_after_uncertain_write = False
        """Whether the batch is a part of a batch that may have been written as a whole."""
        self.topic_id: bytes | None = None
        """The id of the topic at the last attempt."""
        self.leader_epoch = -1
        """The leader epoch known at the last attempt."""
        self.base_sequence, self.sequence_order = NO_SEQUENCE, 0
        """The number of the batch's first record, and how many batches of the partition were
        numbered before this one."""
        self.producer_id = self.producer_epoch = -1
        self.transactional = transactional
        self._compression = compression
        self._ratio = queue.topic.ratio
        self._ratio_factor = 1.0
        if compression[0] is not _NO_CODEC:
            self._ratio_factor = self._ratio.value * _ESTIMATE_MARGIN
            # However well the records compress: compressing a batch is one piece of work.
            elastic_limit = min(self._raw_size_of(elastic_limit), _MOST_RAW * elastic_limit)
            limit = self._raw_size_of(limit)
        self.raw_full = limit
        """The size before compression from which on the batch is ready."""
        self._raw_limit = limit if limit > elastic_limit else elastic_limit

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

    def append(self, record: Record) -> bool:
        """Whether the record was appended: the batch is open, and its buffer has room."""
        timestamp, key, value, headers = record[:4]
        if self.closed or not self.builder.append(timestamp, key, value, headers):
            return False
        self.result.count += 1
        return True

    def adopt(self, records: BatchBuilder) -> None:
        """Take these records of a ``send_batch``, and no others."""
        assert not self.count, "a batch adopts records before it has any"
        self.builder = records
        self.result.count = records.count
        self.result.atomic = True
        self.close()

    def growth_for(self, record: Record) -> tuple[int, int] | None:
        """(least, best) bytes by which the buffer must grow to take a record that :meth:`append`
        did not take. None: the record is for the next batch."""
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
    def atomic(self) -> bool:
        """Whether the records have one outcome: the batch is sent as the caller made it."""
        return self.result.atomic

    @property
    def size(self) -> int:
        """Bytes on the wire: exact once sealed, before that estimated by the last batches."""
        if self.sealed:
            return self.sealed_size
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
        # A batch reserved for a partition takes as much as the partition's share lacks.
        reserved = self.rebindable and not self.queue.unbound
        return self.closed or self.builder.size >= (self._raw_limit if reserved else self.raw_full)

    @property
    def large(self) -> bool:
        """Whether the batch has grown to half of what it may grow to without a broker."""
        return self._raw_limit > self.raw_full and self.builder.size >= self._raw_limit // 2

    def bind(self, queue: PartitionQueue, rebindable: bool = False) -> None:
        """The batch goes to another queue, of a partition or of its topic's unbound batches."""
        assert not self.attempts, "only a batch that was never sent changes its partition"
        if self.append_slot is not None:
            self.append_slot.invalidate()
            self.append_slot = None
        self.rebindable = rebindable
        self.credited_bytes = 0
        self.queue = queue
        self.move_charge(queue.share)
        self.result.partition = queue.partition

    def set_any_partition(self) -> None:
        """The partition of every record is left to the producer, until :meth:`note_record`."""
        self.any_partition = True

    def note_record(self, left_to_producer: bool) -> None:
        """A record was appended; ``left_to_producer``: it has neither a key nor a partition."""
        if not (left_to_producer or self.rebindable):
            self.any_partition = False

    def record_binding(self, facts: BindingFacts | None) -> None:
        """Keep for the hooks how the batch came to its partition."""
        self.binding_facts = facts

    def credit(self, nbytes: int) -> None:
        """The batch's partition was credited with ``nbytes`` of the batch before it is sent."""
        self.credited_bytes += nbytes

    def linger_until(self, when: float) -> None:
        """Linger at least until ``when``."""
        self.lingers_until = max(self.lingers_until, when)

    def stop_lingering(self) -> None:
        """Leave as soon as a broker takes the batch."""
        self.no_linger = True
        self.lingers_until = self.created

    def close(self) -> None:
        """Take no more records. From now on the batch counts as full."""
        self.closed = True
        if self.append_slot is not None:
            self.append_slot.invalidate()
            self.append_slot = None

    def open_append_slot(self, filled_up: Callable[[], None]) -> None:
        """Let records be appended without a look at each. ``filled_up()`` is called once, when the
        batch is full."""
        self.append_slot = AppendSlot(self.builder, self.result, self.raw_full, filled_up)

    # --- memory -------------------------------------------------------------------------------

    def grow(self, nbytes: int) -> None:
        """Enlarge the buffer by ``nbytes``, which are charged."""
        self.charged += nbytes
        self.share.held += nbytes
        self.builder.reserve(self.builder.capacity + nbytes)

    def set_charge(self, nbytes: int) -> int:
        """Hold ``nbytes`` of the buffer memory from now on. Returns by how many bytes that is less
        than before."""
        freed, self.charged = self.charged - nbytes, nbytes
        self.share.held -= freed
        return freed

    def move_charge(self, share: BufferShare) -> None:
        """The batch is for another broker."""
        self.share.held -= self.charged
        share.held += self.charged
        self.share = share

    # --- compression --------------------------------------------------------------------------

    def seal(self) -> None:
        """Compress, and fix everything but producer id, epoch and sequence. Idempotent."""
        if not self.sealed:
            self.close()
            codec, level = self._compression
            self.end_compression(pack(codec, self.builder.close(), level))

    def begin_compression(self) -> Callable[[], bytearray | None]:
        """Close the batch. Returns the work, which any thread may do. The result of the work is
        for :meth:`end_compression`."""
        self.close()
        self.compressing = True
        codec, level = self._compression
        return partial(pack, codec, self.builder.close(), level)

    def end_compression(self, packed: bytearray | None) -> None:
        """The batch is sealed. ``packed`` is None when compression gained nothing."""
        raw, codec = self.builder.size, self._compression[0]
        self.sealed_size = raw
        self.compressing, self.sealed = False, True
        if packed is not None:
            self.builder.replace(codec, packed)
            self.sealed_size = len(packed)
        if codec is not _NO_CODEC and raw > BATCH_OVERHEAD:
            self._ratio.observe((self.sealed_size - BATCH_OVERHEAD) / (raw - BATCH_OVERHEAD))

    def reset_compression_estimate(self) -> None:
        """The batch was estimated too small. The next batches are not (as in Java)."""
        self._ratio.value = 1.0

    # --- sending ------------------------------------------------------------------------------

    def stamp(
        self, producer_id: int, producer_epoch: int, base_sequence: int, order: int | None = None
    ) -> None:
        """Give the sealed batch its identity. A retry keeps it, a raised epoch gives a new one.
        ``order``: how many batches of the partition were numbered before (default: unchanged)."""
        assert self.sealed, "only a sealed batch is numbered"
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        if order is not None:
            self.sequence_order = order
        self.builder.stamp(producer_id, producer_epoch, base_sequence, self.transactional)

    @property
    def stamped(self) -> bool:
        """Whether the batch has a sequence number."""
        return self.base_sequence != NO_SEQUENCE

    def begin_flight(self, leader_epoch: int, topic_id: bytes | None) -> None:
        """The batch goes on the wire. To be called by its queue."""
        assert self.sealed, "only a sealed batch is sent"
        assert not self.in_flight, "a batch is on the wire once"
        self.rebindable = False
        self.attempts += 1
        self.leader_epoch = leader_epoch
        self.topic_id = topic_id
        self.in_flight = True

    def land(self) -> None:
        """The batch is not on the wire any more. To be called by its queue."""
        assert self.in_flight, "only a batch on the wire lands"
        self.in_flight = False

    def mark_uncertain(self) -> None:
        """An attempt ended without a clear answer: the batch may have been written."""
        self.maybe_written = True

    def mark_unwritten(self) -> None:
        """No log has the batch."""
        self.maybe_written = False

    def leave_cluster(self) -> None:
        """The client is in another cluster, where no log has the batch."""
        self.maybe_elsewhere |= self.maybe_written
        self.maybe_written = self.split_after_uncertain_write = False
        self.retry_at = 0.0

    def schedule_retry(self, error: KafkaError, at: float, counts: bool) -> None:
        """Send the batch again from the time ``at`` on; ``counts``: towards its retries."""
        self.last_error = error
        self.retries += counts
        self.retry_at = at

    def retry_at_once(self) -> None:
        """End the back-off."""
        self.retry_at = 0.0

    def unbind(self) -> None:
        """Go back to the topic's unbound batches. No log has the batch, nor will one have it."""
        assert not self.in_flight, "a batch on the wire keeps its partition"
        self.close()
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.retry_at = 0.0
        self.maybe_written = self.split_after_uncertain_write = False
        self.binding_facts = None
        self.bind(self.queue.topic.unbound, rebindable=True)

    def inherit(self, parent: ProducerBatch) -> None:
        """Take over what was known of the batch that this one is a part of."""
        self.attempts, self.retries = parent.attempts, parent.retries
        self.last_error, self.sequence_order = parent.last_error, parent.sequence_order
        self.binding_facts, self.any_partition = parent.binding_facts, parent.any_partition
        self.topic_id = parent.topic_id
        self.maybe_written, self.maybe_elsewhere = parent.maybe_written, parent.maybe_elsewhere
        self.split_after_uncertain_write = (
            parent.split_after_uncertain_write or parent.maybe_written
        )

    @property
    def sent_to_deleted_topic(self) -> bool:
        """Whether the topic was deleted and created again since the last attempt."""
        return self.topic_id is not None and self.topic_id != self.queue.topic.topic_id

    def buffer(self) -> memoryview:
        """The bytes for the wire."""
        return self.builder.buffer()
