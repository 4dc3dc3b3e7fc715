"""Applies a consumer's deserializers, and handles records that cannot be deserialized."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from kafkaclient.consumer.steps import two_tasks
from kafkaclient.dead_letters import error_text
from kafkaclient.errors import ConfigError, DeserializationError
from kafkaclient.log_fields import log_fields
from kafkaclient.producer.batches.serializers import SerializationContext, function_of
from kafkaclient.types import Value_co

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.config.consumer import ConsumerConfig
    from kafkaclient.consumer.partitions import Partitions
    from kafkaclient.consumer.records import Record, RecordStream, Rows
    from kafkaclient.consumer.steps import RowFeed
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

_LOG_EVERY_S = 10.0  # seconds between two messages about records of one partition


class Deserializer(Protocol[Value_co]):
    """A deserializer that gets the record's topic and headers (Java: ``Deserializer``).

    It is given as ``key_deserializer`` or ``value_deserializer``. An object that can be called is
    used as a function of the bytes alone, also if it has a method ``deserialize``.
    """

    def deserialize(
        self, data: bytes, context: SerializationContext, /
    ) -> Awaitable[Value_co] | Value_co:
        """What the bytes stand for, or an awaitable of it. The key is deserialized before the
        value; ``context.headers`` is a list of the record's headers.

        An error that is ``retriable``, or a ConfigError, is not held against the record: the loop
        raises it, whatever ``on_error`` is.
        """
        ...


class _Field:
    def __init__(self, name: Literal["key", "value"], deserializer: Any) -> None:
        self._name = name
        self._function, self._gets_context = function_of(deserializer, "deserialize")

    async def apply(self, record: Record, data: Any, headers: list[Any]) -> Any:
        """The key or value from its bytes; null stays None."""
        if data is None or self._function is None:
            return data
        try:
            if self._gets_context:
                context = SerializationContext(record.topic, self._name, headers)
                found = self._function(data, context)
            else:
                found = self._function(data)
            return await found if isinstance(found, Awaitable) else found
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            is_cancelled = isinstance(error, asyncio.CancelledError) and task and task.cancelling()
            if is_cancelled or isinstance(error, ConfigError) or getattr(error, "retriable", False):
                raise
            raise self._failed(record, error) from error

    def _failed(self, record: Record, error: BaseException) -> DeserializationError:
        failed = DeserializationError(
            f"the {self._name} of the record at {record.topic_partition}, offset {record.offset}, "
            f"cannot be deserialized: {type(error).__name__}: {error_text(error)}"
        )
        failed.topic_partition, failed.offset = record.topic_partition, record.offset
        failed.field = self._name
        return failed


class Deserializing:
    """What all loops of a consumer share: the deserializers, and ``on_error``. ``on_dropped`` is
    called for each record that is skipped or given to the application's handler."""

    def __init__(
        self,
        config: ConsumerConfig,
        clock: Callable[[], float],
        on_dropped: Callable[[], None],
        feed: RowFeed,
    ) -> None:
        self.feed = feed
        self._key = _Field("key", config.key_deserializer)
        self._value = _Field("value", config.value_deserializer)
        self._on_error = config.on_error
        self._clock = clock
        self._on_dropped = on_dropped
        self._logged: dict[TopicPartition, tuple[float, int]] = {}
        """By partition: until when nothing is logged, and how many records were not logged."""

    def records(self, stream: RecordStream) -> DeserializedRecords:
        """The records of a loop, deserialized."""
        return DeserializedRecords(stream, self)

    async def apply(self, record: Record) -> Record[Any, Any]:
        """The record with its key and value as objects. Raises DeserializationError."""
        headers = list(record.headers)
        key = await self._key.apply(record, record.key, headers)
        return record.deserialized(key, await self._value.apply(record, record.value, headers))

    async def polled(
        self, found: Mapping[TopicPartition, list[Record]], partitions: Partitions
    ) -> dict[TopicPartition, list[Record[Any, Any]]]:
        """The records that ``getone`` and ``getmany`` give. At a record that fails, it and those
        behind it are given back; so are all of a partition that was sought, paused or given up
        meanwhile. Raises the error if no other record is left."""
        rows = {where: partitions[where].rows for where in found}
        kept = dict.fromkeys(found, 0)
        given: dict[TopicPartition, list[Record[Any, Any]]] = {}
        failure: Exception | None = None
        try:
            taken = {where: await self._until_failure(each) for where, each in found.items()}
            for where, (records, count, error) in taken.items():
                if _is_over(partitions, rows[where], where):
                    continue
                kept[where] = count
                failure = failure or error
                if records:
                    given[where] = records
        finally:  # also if this is cancelled
            for where, each in found.items():
                _give_back(partitions, rows[where], each[kept[where] :])
        if failure is not None and not given:
            raise failure
        return given

    async def _until_failure(
        self, records: list[Record]
    ) -> tuple[list[Record[Any, Any]], int, Exception | None]:
        """The records up to the first that fails and is not dropped, the number of records before
        that one, and its error."""
        found: list[Record[Any, Any]] = []
        for count, raw in enumerate(records):
            try:
                try:
                    found.append(await self.apply(raw))
                except DeserializationError as error:
                    await self.drop(raw, error)
            except Exception as error:  # noqa: BLE001 - it is raised if nothing is given
                return found, count, error
        return found, len(records), None

    async def drop(self, record: Record, error: DeserializationError) -> None:
        """Skip the record, or have the application's handler take it. Raises the error if neither
        is wanted, and what the handler raises."""
        handler = self._on_error
        if handler == "fail":
            error.args = (
                f"{error}. It is not committed, and the next loop begins with it. Correct the "
                f"{error.field}_deserializer, seek past it (consumer.seek(error.topic_partition, "
                "error.offset + 1)), or give the consumer on_error='skip' or "
                "on_error=DeadLetters(producer, topic)",
            )
            raise error
        if callable(handler):
            try:
                waiting = handler(record, error)
                if isinstance(waiting, Awaitable):
                    await waiting
            except Exception as failed:
                failed.add_note(f"on_error={handler!r} was called because {error}")
                raise
        self._on_dropped()
        self._log(error, "skipped" if handler == "skip" else f"given to {handler!r}")

    def _log(self, error: DeserializationError, what: str) -> None:
        """Log one record of each partition in ten seconds."""
        now, where = self._clock(), error.topic_partition
        until, held = self._logged.get(where, (now, 0))
        if now < until:
            self._logged[where] = until, held + 1
            return
        self._logged[where] = now + _LOG_EVERY_S, 0
        more = f"; so were {held} others of this partition since the last message" if held else ""
        fields = log_fields(error, topic=where.topic, partition=where.partition)
        _log.warning("%s; it was %s%s", error, what, more, extra=fields)


def _is_over(partitions: Partitions, rows: Rows | None, where: TopicPartition) -> bool:
    """Whether the partition was sought, paused or given up since it handed out the rows."""
    is_same = where in partitions and partitions[where].rows is rows
    return not is_same or (rows is not None and rows.is_cut)


def _give_back(partitions: Partitions, rows: Rows | None, records: list[Record]) -> None:
    """The position of a partition is before these records again, the last that it has handed out,
    unless it was sought or given up meanwhile."""
    for raw in reversed(records):
        where = raw.topic_partition
        if rows is not None and where in partitions and partitions[where].rows is rows:
            rows.give_back()
            raw.done()  # a rebalance need not wait for it


class DeserializedRecords:
    """An asynchronous iterator over the records of ``records``, deserialized."""

    def __init__(self, records: RecordStream, shared: Deserializing) -> None:
        self._records = records
        self._shared = shared
        self._is_busy = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[Any, Any]:
        if self._is_busy:  # the other record would be finished, or given back in place of this one
            raise two_tasks()
        self._is_busy = True
        try:
            return await self._next()
        finally:
            self._is_busy = False

    async def _next(self) -> Record[Any, Any]:
        while True:
            raw = await anext(self._records)
            rows = self._records.rows
            assert rows is not None  # a record was taken of them
            try:
                record = await self._shared.apply(raw)
            except DeserializationError as error:
                try:
                    await self._shared.drop(raw, error)
                except BaseException as failed:
                    self._give_back(rows, raw, failed)
                    raise
                if self._records.rows is rows:
                    raw.done()
            except BaseException as failed:
                self._give_back(rows, raw, failed)
                raise
            else:
                if rows is self._records.rows and not rows.is_cut:
                    self._shared.feed.loop_error = None
                    return record
                # Meanwhile it was sought, paused or given up, or another loop has begun.
                self._give_back(rows, raw)

    def _give_back(self, rows: Rows, raw: Record, error: BaseException | None = None) -> None:
        """The position is before the record again: another loop begins with it. ``error`` ends this
        one."""
        if self._records.rows is rows:
            if isinstance(error, Exception):
                self._shared.feed.loop_error = error
            rows.give_back()
            raw.done()  # nothing is in hand: a rebalance need not wait
