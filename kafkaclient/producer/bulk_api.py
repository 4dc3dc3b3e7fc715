"""The producer's methods for many records at once. Their modules are imported by the first call."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic

from kafkaclient.producer.base import ProducerBase
from kafkaclient.producer.batches.record import RawRecord
from kafkaclient.types import Key_contra, Value_contra

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.bulk.batch_builder import RecordBatchBuilder
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.types import HeadersLike


class BulkApi(ProducerBase, Generic[Key_contra, Value_contra]):
    """The methods of :class:`~kafkaclient.Producer` for many records."""

    async def send_many(
        self,
        topic: str,
        values: Iterable[Value_contra | None],
        *,
        keys: Iterable[Key_contra | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
        timestamps_ms: Iterable[int | None] | None = None,
        record_headers: Iterable[HeadersLike] | None = None,
    ) -> BulkDelivery:
        """Hand over many records, at a fraction of the cost of :meth:`send` for each; await the
        returned :class:`BulkDelivery` for their acknowledgement::

            delivery = await producer.send_many("flights", values, keys=carriers)
            metadata = await delivery  # BulkMetadata(topic, records, partitions)

        All records are checked before the first is appended to a batch. The call returns when the
        last is appended: it waits for buffer space, up to ``max.block.ms`` at a time, and lets
        other tasks run about every millisecond. If the call is cancelled, the records appended
        before are delivered, the others are not sent. See docs/how-to/bulk.md.

        Parameters: ``values``, and with an item for each of them ``keys``, ``timestamps_ms`` and
        ``record_headers``; the items are as for :meth:`send`. ``partition`` applies to all records,
        ``timestamp_ms`` and ``headers`` to those whose item in ``timestamps_ms`` or
        ``record_headers`` is None or not given. A record without any timestamp has the time when it
        is appended.

        Raises:
            InvalidRecordError: as for :meth:`send`; ``index`` is the record's. Nothing was sent.
            KafkaError: what :meth:`send` raises while it waits (BufferFullError,
                MetadataTimeoutError, ProducerClosedError, PartitionerError, ...); its ``delivery``
                is the :class:`BulkDelivery` of the records that were appended before.
        """
        from kafkaclient.producer.bulk.send_many import BulkSend, send_values  # noqa: PLC0415

        shared = RawRecord(topic, None, None, partition, timestamp_ms, headers)
        bulk = BulkSend(self._open(), shared, self._serializers)
        columns = {"keys": keys, "timestamps_ms": timestamps_ms, "record_headers": record_headers}
        return await bulk.run(send_values(bulk, values, columns))

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
        bulk = BulkSend(self._open(), RawRecord(topic, None, None, partition, timestamp_ms))
        return await bulk.run(columns.send_columns(bulk, data))

    def create_batch(self, *, batch_size: int | None = None) -> RecordBatchBuilder:
        """A builder for the records of one record batch, which :meth:`send_batch` sends.

        ``batch_size``: the most bytes before compression; default: the option ``batch.size``, at
        most ``max.request.size`` and ``buffer.memory``. The producer need not be started.

        Raises:
            ConfigError: ``batch_size`` is not an int, or negative.
        """
        from kafkaclient.producer.bulk.batch_builder import RecordBatchBuilder  # noqa: PLC0415

        return RecordBatchBuilder(self.config, self._wall_clock, batch_size, self._serializers)

    async def send_batch(
        self, batch: RecordBatchBuilder, topic: str, *, partition: int | None = None
    ) -> Delivery:
        """Send records as one record batch: the broker writes all of them, or none::

            batch = producer.create_batch()
            batch.append(b"debit", key=b"A", headers={"transfer": b"7"})
            batch.append(b"credit", key=b"B", headers={"transfer": b"7"})
            metadata = await (await producer.send_batch(batch, "bookings"))

        The delivery stands for all records. Its result is the :class:`RecordMetadata` of the first
        record: the others have the offsets behind it, ``batch.record_count`` in all. If a record is
        rejected, all fail. ``on_delivery`` is called once, with this delivery.

        Without ``partition`` the producer chooses one partition for the whole batch, as for a
        record without key: keys do not choose the partition. A custom partitioner is asked once,
        with neither key nor value. With ``partition``, the records that were sent to it before are
        written before the batch, and later ones after it. The producer neither splits the batch nor
        adds to it. The producer that made the batch has serialized keys and values; the producer
        that sends it compresses them. The call waits as :meth:`send` does.

        Raises:
            InvalidRecordError: the batch is empty, the topic or partition is not acceptable.
            RecordTooLargeError: the batch was made by another producer, and is larger than this
                producer's ``max.request.size`` or ``buffer.memory``.
            ProducerStateError: the batch was sent before, or the producer is not running.
            KafkaError: what :meth:`send` raises (BufferFullError, MetadataTimeoutError,
                PartitionerError, ...). The batch was not sent, and can be passed again.
        """
        from kafkaclient.producer.bulk.batch_builder import RecordBatchBuilder  # noqa: PLC0415

        core = self._open()
        if not isinstance(batch, RecordBatchBuilder):
            raise TypeError(f"send_batch takes what create_batch makes, not {batch!r}")
        record = batch.take(core.config, topic, partition)
        try:
            delivery = core.admission.try_append(topic, record)
            return delivery or await core.admission.wait_and_append(topic, record)
        except BaseException:
            batch.give_back()
            raise
