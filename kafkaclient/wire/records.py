"""Builds record batches (format 2, KIP-98), the unit in which Kafka stores and sends records.

What happens once per record is in ``record_buffer.py``; what happens once per batch is here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import crc32c

from kafkaclient.wire.compression import Codec, compress
from kafkaclient.wire.record_buffer import RecordBuffer, fields_size, record_size
from kafkaclient.wire.record_reader import (
    BATCH_OVERHEAD,
    CRC_START,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Record,
    batch_header,
    iter_records,
    verify_crc,
)

if TYPE_CHECKING:
    from kafkaclient.types import Buffer, Headers

__all__ = [
    "BATCH_OVERHEAD",
    "MAX_RECORD_OVERHEAD",
    "BatchBuilder",
    "BatchHeader",
    "Record",
    "batch_header",
    "fields_size",
    "iter_records",
    "pack",
    "record_size",
    "record_size_upper_bound",
    "verify_crc",
]

MAX_RECORD_OVERHEAD = 21
"""The most bytes of a record besides its fields: length 5, attributes 1, deltas 10 and 5."""

_NO_PARTITION_LEADER_EPOCH = -1
_NO_PRODUCER = -1
_CRC = struct.Struct(">I")
_CRC_OFFSET = 17
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_OFFSET = 43


class BatchBuilder(RecordBuffer):
    """One record batch: append records, seal it, stamp it, send its buffer.

    ``capacity`` (bytes, header included) bounds the size before compression; memory is taken as
    it is needed. :meth:`seal` and what follows it raise RuntimeError when called out of order.
    """

    __slots__ = ("_attributes", "_batch", "_checksum_due")

    def __init__(self, capacity: int) -> None:
        RecordBuffer.__init__(self, capacity)  # super() would cost as much as all the rest
        self._batch: bytearray | None = None
        self._attributes = 0
        self._checksum_due = True

    def __repr__(self) -> str:
        state = "open" if self._batch is None else f"sealed to {len(self._batch)} B"
        return f"<BatchBuilder {self.count} records, {self.size}/{self.capacity} B, {state}>"

    @property
    def sealed(self) -> bool:
        """Whether the batch is closed for records."""
        return self._batch is not None

    @property
    def codec(self) -> Codec:
        """How the sealed batch is compressed: NONE also when compression gained nothing."""
        if self._batch is None:
            raise _not_sealed()
        return Codec(self._attributes & ~TRANSACTIONAL)

    def seal(self, codec: int = Codec.NONE, level: int | None = None) -> None:
        """Close the batch for records, compress them and write the header.

        Records that would not get smaller stay uncompressed, so that a sealed batch is never
        larger than :attr:`size`. Raises RuntimeError for an empty batch or one sealed before.

        The same in steps, the second of which another thread may do: :meth:`close`, :func:`pack`
        of what it returns, :meth:`replace`.
        """
        chosen = Codec(codec)
        self.replace(chosen, pack(chosen, self.close(), level))

    def close(self) -> bytearray:
        """Take no more records; the batch as it is sealed without compression."""
        if self._batch is not None:
            raise RuntimeError("the batch is sealed already")
        if self.count == 0:
            raise RuntimeError("a batch without records cannot be sealed")
        batch = self._batch = self.freeze()
        self._write_header(batch)
        return batch

    def replace(self, codec: int, packed: bytearray | None) -> None:
        """Put what :func:`pack` has made in the place of the batch's records."""
        if packed is not None:
            self._batch = packed
            self._attributes = Codec(codec).value
            self._write_header(packed)

    def stamp(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool = False,
    ) -> None:
        """Give the sealed batch its place in an idempotent producer's sequence (KIP-98).

        May be called again before the batch is sent another time, but not while a live connection
        still holds its buffer. A batch that is never stamped is sent without a producer id.
        """
        batch = self._batch
        if batch is None:
            raise _not_sealed()
        codec = self._attributes & ~TRANSACTIONAL
        self._attributes = codec | TRANSACTIONAL if transactional else codec
        _ATTRIBUTES.pack_into(batch, CRC_START, self._attributes)
        _PRODUCER.pack_into(batch, _PRODUCER_OFFSET, producer_id, producer_epoch, base_sequence)
        self._checksum_due = True

    def buffer(self) -> memoryview:
        """The sealed batch as it goes over the wire, without a copy."""
        batch = self._batch
        if batch is None:
            raise _not_sealed()
        if self._checksum_due:
            # Only here, so that sealing and stamping do not each read all of the batch.
            checksum = crc32c.crc32c(memoryview(batch)[CRC_START:])
            _CRC.pack_into(batch, _CRC_OFFSET, checksum)
            self._checksum_due = False
        return memoryview(batch)

    def _write_header(self, batch: bytearray) -> None:
        HEADER.pack_into(
            batch,
            0,
            0,  # base offset: the broker's business
            len(batch) - LENGTH_OVERHEAD,
            _NO_PARTITION_LEADER_EPOCH,
            MAGIC,
            0,  # checksum: see buffer()
            self._attributes,
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            _NO_PRODUCER,
            _NO_PRODUCER,
            _NO_PRODUCER,
            self.count,
        )


def _not_sealed() -> RuntimeError:
    return RuntimeError("the batch is not sealed yet")


def pack(codec: Codec, batch: bytearray, level: int | None = None) -> bytearray | None:
    """The batch's records compressed, behind room for its header; None if that gains nothing."""
    if codec is Codec.NONE:
        return None
    records = memoryview(batch)[BATCH_OVERHEAD:]
    compressed = compress(codec, records, level)
    return bytearray(BATCH_OVERHEAD) + compressed if len(compressed) < len(records) else None


def record_size_upper_bound(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """The most bytes a record can take at any place of any batch.

    With :data:`BATCH_OVERHEAD` added it is the most that a batch of this one record can take
    (Java: estimateSizeInBytesUpperBound), which is what ``max.request.size`` is held against.
    """
    return MAX_RECORD_OVERHEAD + fields_size(key, value, headers)
