"""The producer's methods for many records at once. Their modules are imported by the first call."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkaclient.producer.batches.record import RawRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.runtime import ProducerRuntime
    from kafkaclient.types import HeadersLike


class SendManyMixin:
    """The methods of :class:`~kafkaclient.Producer` for many records."""

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> BulkDelivery:
        """Hand over many records, at a fraction of the cost of :meth:`send` for each; await the
        returned :class:`BulkDelivery` for their acknowledgement::

            delivery = await producer.send_many("flights", values, keys=carriers)
            metadata = await delivery  # BulkMetadata(topic, records, partitions)

        All records are checked before the first is appended to a batch. The call returns when the
        last is appended: it waits for buffer space, up to ``max.block.ms`` at a time, and lets
        other tasks run about every millisecond. If the call is cancelled, the records appended
        before are delivered, the others are not sent. See docs/bulk.md.

        Parameters: ``values`` and ``keys`` as for :meth:`send`, a key for each value; the other
        parameters apply to all records. Without ``timestamp_ms`` a record has the time when it is
        appended.

        Raises:
            InvalidRecordError: as for :meth:`send`; ``index`` is the record's. Nothing was sent.
            KafkaError: what :meth:`send` raises while it waits (BufferFullError,
                MetadataTimeoutError, ProducerClosedError, PartitionerError, ...); its ``delivery``
                is the :class:`BulkDelivery` of the records that were appended before.
        """
        from kafkaclient.producer.bulk.send_many import BulkSend, send_values  # noqa: PLC0415

        shared = RawRecord(topic, None, None, partition, timestamp_ms, headers)
        bulk = BulkSend(self._open(), shared, serialize=True)
        return await bulk.run(send_values(bulk, values, keys, partition, timestamp_ms))

    async def send_arrow(
        self,
        topic: str,
        data: Any,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> BulkDelivery:
        """:meth:`send_many` for Arrow columns, without a Python object for each record::

            table = pyarrow.table({"key": carriers, "value": lines})
            metadata = await (await producer.send_arrow("flights", table))

        ``data`` is a pyarrow Table, RecordBatch or RecordBatchReader, or anything with the Arrow
        C stream or array interface (pandas, Polars, DuckDB). Its columns, by name: ``key``,
        ``value`` (binary or string), ``headers``, ``timestamp``, ``partition``; null means the
        same as None in :meth:`send`. ``partition`` and ``timestamp_ms`` apply to rows without a
        partition or timestamp. Serializers are not applied. Needs the extra ``arrow``.

        A stream is read chunk by chunk, in the event loop's thread. A chunk is checked before its
        first record is appended; earlier chunks may have been sent by then.

        Raises:
            ConfigError: pyarrow cannot be imported.
            KafkaError: as :meth:`send_many`; InvalidRecordError also for columns that are not
                acceptable and streams that cannot be read. ``index`` counts rows from 0.
        """
        from kafkaclient.producer.bulk.send_many import BulkSend  # noqa: PLC0415

        columns = import_module("kafkaclient.producer.bulk.arrow")  # it needs pyarrow
        shared = RawRecord(topic, None, None, partition, timestamp_ms)
        bulk = BulkSend(self._open(), shared)
        return await bulk.run(columns.send_columns(bulk, data, partition, timestamp_ms))

    def _open(self, *, in_transaction: bool = True) -> ProducerRuntime:
        raise NotImplementedError  # Producer implements it
