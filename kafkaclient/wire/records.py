"""Builds record batches (format 2, KIP-98), the unit in which Kafka stores and sends records.

This module has the work per batch, ``record_buffer.pyx`` the work per record.
``records.pxd`` has the C types.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import cython

from kafkaclient.wire.compression import CompressionType, compress, crc32c
from kafkaclient.wire.record_buffer import fields_size, record_size
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

if not cython.compiled:  # for the type checker: these names are in C (see the .pxd)
    from kafkaclient.wire.record_buffer import RecordBuffer

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
"""The most bytes of a record without its fields: length 5, attributes 1, deltas 10 and 5."""

_NO_PARTITION_LEADER_EPOCH = -1
_NO_PRODUCER = -1
_CRC = struct.Struct(">I")
_CRC_OFFSET = 17


class BatchBuilder(RecordBuffer):
    """One record batch: append records, seal it, stamp it, send its buffer.

    ``capacity`` (bytes, header included) limits the size before compression. :meth:`seal` and the
    methods after it raise RuntimeError if they are called in the wrong order.
    """

    __slots__ = (
        "_attributes",
        "_base_sequence",
        "_batch",
        "_header_due",
        "_producer_epoch",
        "_producer_id",
    )

    def __init__(self, capacity: int) -> None:
        RecordBuffer.__init__(self, capacity)  # super() would double the time
        self._batch: bytearray | None = None
        self._attributes = 0
        self._producer_id = self._producer_epoch = self._base_sequence = _NO_PRODUCER
        self._header_due = True

    def __repr__(self) -> str:
        state = "open" if self._batch is None else f"sealed to {len(self._batch)} B"
        return f"<BatchBuilder {self.count} records, {self.size}/{self.capacity} B, {state}>"

    @property
    def sealed(self) -> bool:
        """Whether the batch is closed for records."""
        return self._batch is not None

    @property
    def codec(self) -> CompressionType:
        """The codec of the sealed batch; NONE if compression did not make it smaller."""
        if self._batch is None:
            raise _not_sealed()
        return CompressionType(self._attributes & ~TRANSACTIONAL)

    def seal(self, codec: int = CompressionType.NONE, level: int | None = None) -> None:
        """Close the batch for records, and compress them.

        Records that would not become smaller stay uncompressed: a sealed batch is never larger than
        :attr:`size`. Raises RuntimeError for an empty batch or a sealed one.

        The steps are :meth:`close`, :func:`pack`, which may run in another thread, and
        :meth:`replace`.
        """
        chosen = CompressionType(codec)
        self.replace(chosen, pack(chosen, self.close(), level))

    def close(self) -> bytearray:
        """Close the batch for records; returns it without compression and without its header."""
        if self._batch is not None:
            raise RuntimeError("the batch is sealed already")
        if self.count == 0:
            raise RuntimeError("a batch without records cannot be sealed")
        batch = self._batch = self.freeze()
        return batch

    def replace(self, codec: int, packed: bytearray | None) -> None:
        """Replace the batch by the result of :func:`pack`, unless it is None."""
        if packed is not None:
            self._batch = packed
            self._attributes = CompressionType(codec).value
            self._header_due = True

    def stamp(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool = False,
    ) -> None:
        """Give the sealed batch an idempotent producer's id, epoch and sequence (KIP-98).

        It may be called again before a retry, but not while an open connection still has the
        buffer. A batch that was never stamped is sent without a producer id.
        """
        if self._batch is None:
            raise _not_sealed()
        codec = self._attributes & ~TRANSACTIONAL
        self._attributes = codec | TRANSACTIONAL if transactional else codec
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._header_due = True

    def buffer(self) -> memoryview:
        """The bytes of the sealed batch, without a copy."""
        batch = self._batch
        if batch is None:
            raise _not_sealed()
        view = memoryview(batch)
        if self._header_due:  # only here: sealing and stamping would each read the whole batch
            self._header_due = False
            HEADER.pack_into(
                view,
                0,
                0,  # base offset: the broker sets it
                len(batch) - LENGTH_OVERHEAD,
                _NO_PARTITION_LEADER_EPOCH,
                MAGIC,
                0,  # checksum: see below
                self._attributes,
                self.count - 1,
                self.base_timestamp,
                self.max_timestamp,
                self._producer_id,
                self._producer_epoch,
                self._base_sequence,
                self.count,
            )
            _CRC.pack_into(view, _CRC_OFFSET, crc32c(view[CRC_START:]))
        return view


def _not_sealed() -> RuntimeError:
    return RuntimeError("the batch is not sealed yet")


def pack(codec: CompressionType, batch: bytearray, level: int | None = None) -> bytearray | None:
    """The compressed records behind 61 bytes for the header; None if they are not smaller."""
    if codec is CompressionType.NONE:
        return None
    records = memoryview(batch)[BATCH_OVERHEAD:]
    compressed = compress(codec, records, level)
    return bytearray(BATCH_OVERHEAD) + compressed if len(compressed) < len(records) else None


def record_size_upper_bound(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """The largest size of a record in bytes, wherever it is in a batch.

    Plus :data:`BATCH_OVERHEAD` it is the largest size of a batch with this record alone, which must
    not exceed ``max.request.size`` (Java: estimateSizeInBytesUpperBound).
    """
    return MAX_RECORD_OVERHEAD + fields_size(key, value, headers)
