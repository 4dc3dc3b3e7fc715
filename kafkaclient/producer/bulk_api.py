"""The producer's methods for many records at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkaclient.producer.batches.record import RawRecord
from kafkaclient.producer.bulk.send_many import BulkSend, send_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.runtime import ProducerRuntime
    from kafkaclient.types import HeadersLike

__all__ = ["SendManyMixin"]


class SendManyMixin:
    """What :class:`~kafkaclient.Producer` is called by for records in bulk."""

    config: ProducerConfig
    _wall_clock: Callable[[], float]

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

        All are checked before the first is taken. The call returns when the last has been taken:
        it waits for buffer space, up to ``max.block.ms`` at a time, and lets other tasks run about
        every millisecond. Cancelled, those taken are delivered, the others not. See docs/bulk.md.

        Parameters: ``values``, and one of ``keys`` for each, as for :meth:`send`; the others hold
        for all records. Without ``timestamp_ms`` records have the time when they are taken.

        Raises:
            InvalidRecordError: as for :meth:`send`; ``index`` tells which. Nothing was sent.
            KafkaError: what :meth:`send` raises while it waits (BufferFullError,
                MetadataTimeoutError, ProducerClosedError, PartitionerError, ...); its ``delivery``
                is the :class:`BulkDelivery` of the records that had been taken by then.
        """
        shared = RawRecord(topic, None, None, partition, timestamp_ms, headers)
        bulk = BulkSend(self._open(), self.config, self._wall_clock, shared, serialize=True)
        try:
            await send_values(bulk, values, keys, partition, timestamp_ms)
        finally:
            bulk.end()
        return bulk.delivery

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
        same as None does in :meth:`send`. ``partition`` and ``timestamp_ms`` hold for rows without
        one of their own. Serializers are not applied. Needs the extra ``arrow``.

        A stream is read chunk by chunk, in the event loop's thread. A chunk is checked before its
        first record is taken; the chunks before it are on their way by then.

        Raises:
            ConfigError: pyarrow cannot be imported.
            KafkaError: as :meth:`send_many`; InvalidRecordError also for columns that are not
                acceptable and streams that cannot be read. ``index`` counts rows from 0.
        """
        columns = import_module("kafkaclient.producer.bulk.arrow")  # it needs pyarrow
        shared = RawRecord(topic, None, None, partition, timestamp_ms)
        bulk = BulkSend(self._open(), self.config, self._wall_clock, shared)
        try:
            await columns.send_columns(bulk, data, partition, timestamp_ms)
        finally:
            bulk.end()
        return bulk.delivery

    def _open(self, *, in_transaction: bool = True) -> ProducerRuntime:
        raise NotImplementedError
