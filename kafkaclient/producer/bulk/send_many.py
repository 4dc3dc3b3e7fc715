"""Appends many records with one call: checks all of them, then appends them in slices.

A slice has up to 512 records. From the first record of a slice to the last, no other caller appends
to the topic, not even while the call waits for metadata or buffer space, or lets other tasks run,
which it does about every millisecond. :meth:`Rows.pour` fills the open batches; a record that needs
a new or a larger batch is appended as ``send`` does. Rows whose broker takes nothing are set aside,
and the rows for others pass them. If the call breaks off half way, :meth:`BulkSend.broken_off` adds
to the error how many records were handed over.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.config.kinds import Limit
from kafkaclient.errors import InvalidRecordError, KafkaError
from kafkaclient.producer.admission.admission import CALL_DEADLINE
from kafkaclient.producer.admission.send_queue import SendState, run_serializer
from kafkaclient.producer.batches.batch_result import Run
from kafkaclient.producer.batches.record import (
    PendingRecord,
    RawRecord,
    check_place,
    record_of_bytes,
    serialized_record,
)
from kafkaclient.producer.batches.topic_buffer import EVERY
from kafkaclient.producer.bulk.batch_builder import check_column
from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
from kafkaclient.producer.bulk.rows import Values
from kafkaclient.wire.records import BATCH_OVERHEAD, MAX_RECORD_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from kafkaclient.producer.admission.send_queue import WaitingCall
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.serializers import Serializers
    from kafkaclient.producer.bulk.rows import Rows
    from kafkaclient.producer.runtime import ProducerRuntime

E = TypeVar("E", bound=KafkaError)

_SLICE_S = 0.001  # seconds of work after which other tasks of the event loop run
_ROWS_AT_ONCE = 512  # records appended between two readings of the clock
_ITEMS_AT_ONCE = 8192  # items copied between two readings of the clock
_BUFFER_FRACTION = 8  # a call waits for at most 1/8 of buffer.memory at a time
_PATIENCE_S = 0.1  # rows that wait for longer for their broker are set aside
_MAX_PARTITIONS = 2**31


@dataclass(eq=False, slots=True)
class SetAside:
    """Rows of a call that wait for one broker, oldest first, and their turn ``send``.

    ``deadline``: until when they wait for it. ``partitions``: the topic's count when they were set
    aside."""

    send: WaitingCall
    deadline: float
    partitions: int
    rows: deque[tuple[Rows, int]] = field(default_factory=deque)
    task: asyncio.Task[None] = field(init=False)


class BulkSend:
    """One call of ``send_many`` or ``send_arrow``.

    ``shared`` has the topic and the fields that all records have in common. ``serializers`` None:
    keys and values are in bytes. Raises InvalidRecordError if a field of ``shared`` is not
    acceptable.
    """

    def __init__(
        self, core: ProducerRuntime, shared: RawRecord, serializers: Serializers | None = None
    ) -> None:
        config = core.config
        partition = check_place(shared.topic, shared.partition)
        topic = str.__str__(shared.topic)  # a subclass, such as an enum, may override __str__
        shared = shared._replace(topic=topic, partition=partition)
        checked = record_of_bytes(config, core.wall_clock, shared)
        timestamp = None if shared.timestamp_ms is None else checked.timestamp
        self.shared = shared._replace(timestamp_ms=timestamp, headers=checked.headers)
        self.delivery = BulkDelivery(topic)
        self.partitions = _MAX_PARTITIONS
        """The topic's partition count, if rows name their partitions."""
        self._topic = topic
        self._core = core
        self._serializers = serializers
        self._check_open = core.admission.new_guard()
        largest = min(config.max_request_size, config.buffer_memory)
        largest -= BATCH_OVERHEAD + MAX_RECORD_OVERHEAD
        self._largest = largest if serializers is None else -1
        # Bytes of buffer space to wait for: one batch, if that is not too much of buffer.memory.
        self._room = min(config.batch_size, config.buffer_memory // _BUFFER_FRACTION)
        self._yield_at = core.now() + _SLICE_S
        self._pending: WaitingCall | None = None
        """Keeps other callers from appending to the topic, to the end of a slice."""
        self._aside: dict[int, SetAside] = {}
        """By place, the rows that the others pass. Those that failed stay: the call ends."""
        self._waits_until: float | None = None
        self._refreshed = False
        """Whether the call has waited for the topic's latest partition count."""

    async def run(self, sending: Awaitable[None]) -> BulkDelivery:
        """Await ``sending``, which appends the records; the result is :attr:`delivery`. At the end
        other callers can append, whatever happens."""
        try:
            await sending
        finally:
            self._end_slice()
            for aside in self._aside.values():
                aside.task.cancel()
                self._end_turn(aside)
        return self.delivery

    async def wait_for_partitions(self) -> None:
        """Wait for the topic's metadata: rows name partitions, which are checked first."""
        if not self._core.admission.is_known(self._topic):
            self._pending = await self._core.admission.wait_exclusive(self._topic, self._deadline())
        buffer = self._core.accumulator.topic(self._topic)
        self.partitions = buffer.known_view.partition_count

    async def check(self, rows: Rows, base: int = 0) -> None:
        """Raise InvalidRecordError for the first row that cannot be sent; ``base`` is the number of
        the first row. A serialized or copied key or value replaces the original in the rows.
        """
        at, total = 0, len(rows)
        while at < total:
            stop = min(at + _ROWS_AT_ONCE, total)
            at = rows.check(at, stop, self._largest, self.partitions)
            if at < stop:
                await self._check_one(rows, at, base + at)
                at += 1
            await self.yield_if_due()

    async def _check_one(self, rows: Rows, at: int, number: int) -> None:
        try:
            raw = RawRecord(self._topic, *rows.record(at))
            partition = raw.partition
            check_place(self._topic, partition)
            if partition is not None and partition >= self.partitions:
                self.partitions = await self._wait_new_partition(partition)
                self._yield_at = self._core.now() + _SLICE_S  # other tasks have run
            record = await self._in_bytes(raw)
        except InvalidRecordError as error:
            numbered = _with_message(error, f"record {number}: {error}")
            numbered.index = number
            raise numbered from error
        timestamp = None if raw.timestamp_ms is None else record.timestamp
        value, key = _as_bytes(record.value), _as_bytes(record.key)
        rows.replace(at, value, key, timestamp, record.headers)

    async def _in_bytes(self, raw: RawRecord) -> Record:
        """The record after the serializers. Waits for one that is async, for ``max.block.ms``."""
        core = self._core
        record = serialized_record(core.config, core.wall_clock, raw, self._serializers)
        if isinstance(record, PendingRecord):
            limit = Limit(core.max_block, "max.block.ms")
            try:
                record = await run_serializer(
                    record, limit, core.admission.pending_sends.serializers
                )
            finally:
                self._check_open()  # a stop cancels the serializer
            self._yield_at = core.now() + _SLICE_S  # other tasks have run
        return record

    async def append_rows(self, rows: Rows) -> None:
        """Append rows that were checked, in order.

        Raises what ``send`` raises while it waits; :attr:`delivery` has the records appended.
        """
        at, total = 0, len(rows)
        while at < total:
            at = await self._append_slice(rows, at, min(at + _ROWS_AT_ONCE, total))
            self._end_slice()
            if at < total:  # else there is nothing left that a stop could refuse
                await self.yield_if_due()

    async def finish(self) -> None:
        """Wait until the rows that were set aside are appended, too."""
        while self._aside:
            tasks = [aside.task for aside in self._aside.values()]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failed()

    def _raise_failed(self) -> None:
        for aside in self._aside.values():
            if aside.task.done():
                aside.task.result()

    def _end_turn(self, aside: SetAside) -> None:
        if aside.send.state is not SendState.ENDED:
            self._core.admission.pending_sends.end(aside.send)

    def _end_slice(self) -> None:
        """Let other callers append."""
        if self._pending is not None:
            self._core.admission.pending_sends.end(self._pending)
            self._pending = None

    async def _append_slice(self, rows: Rows, at: int, stop: int) -> int:
        while at < stop:  # what was checked may have changed after each await
            if self._aside and self._must_finish_aside():
                self._end_slice()
                await self.finish()
                continue
            if self._pending is None and not self._core.admission.is_known(self._topic):
                if self._joins_aside(rows, at):  # else later calls would pass it
                    at += 1
                    continue
                deadline = self._deadline()
                self._pending = await self._core.admission.wait_exclusive(self._topic, deadline)
                continue
            first, at = at, self._append(rows, at, stop)
            if at == first:
                if self._joins_aside(rows, at) or not await self._wait_to_append(rows, at):
                    at += 1
            elif self._pending is None and self._core.now() >= self._yield_at:
                self._pending = self._core.admission.join_exclusive(self._topic)
                await self.yield_if_due()
        return at

    def _must_finish_aside(self) -> bool:
        """Whether no row may pass those set aside any more: keys may have other partitions by now.
        Raises the error of rows set aside that failed: no row may be appended behind them."""
        self._raise_failed()
        view = self._core.accumulator.topic(self._topic).view
        count = None if view is None else view.partition_count
        return any(aside.partitions != count for aside in self._aside.values())

    def _append(self, rows: Rows, at: int, stop: int) -> int:
        """Append rows until one has to wait; returns the first row that is left."""
        pending, sends = self._pending, self._core.admission.pending_sends
        force = pending is not None and pending.charge > 0
        with sends.spend(pending) if pending is not None and force else nullcontext():
            while at < stop:
                if pending is None or not pending.is_overtaking:
                    at = self._pour(rows, at, stop)
                if at == stop or not self._append_one(rows, at, pending, force=force):
                    break
                at, force = at + 1, False
                if self._pending is None:
                    break  # other tasks may have to run
        return at

    def _pour(self, rows: Rows, at: int, stop: int) -> int:
        slots, runs = self._core.accumulator.topic(self._topic).append_slots, list[Run]()
        slots.remove_old(slots.now_ms())
        try:
            return rows.pour(slots, at, stop, int(self._core.wall_clock() * 1000), runs)
        finally:
            self.delivery.add(runs)

    def _append_one(self, rows: Rows, at: int, call: WaitingCall | None, *, force: bool) -> bool:
        """Append one record as ``send`` does. That gives the batch an append slot, which
        :meth:`_pour` fills. Returns False if the record has to wait. ``call``: whose turn it is, if
        it has waited. ``force``: append even if the record takes more buffer space than is
        charged."""
        delivery = self._core.admission.append(
            self._topic,
            self._record(rows, at),
            call,
            force=force,
            refreshed=self._refreshed,
        )
        if delivery is None:
            return False
        self.delivery.add([delivery.detach()])  # the BulkDelivery replaces the record's delivery
        return True

    def _record(self, rows: Rows, at: int) -> Record:
        raw = RawRecord(self._topic, *rows.record(at))
        return record_of_bytes(self._core.config, self._core.wall_clock, raw)

    async def _wait_to_append(self, rows: Rows, at: int) -> bool:
        """Wait until the record can be appended: its partition is not known, or there is no buffer
        space. Returns False if it was set aside: its broker takes nothing."""
        record, admission = self._record(rows, at), self._core.admission
        buffer = self._core.accumulator.topic(self._topic)
        if admission.must_wait_for_partition(buffer, record.partition, refreshed=self._refreshed):
            self._end_slice()  # callers that wait for the metadata already go first
            await self._wait_new_partition(record.partition)
            return True
        send = self._pending = self._claim(self._pending, record)
        deadline, place = self._deadline(), send.queue.place
        taken = admission.pending_sends.comes_free_soon(buffer.share_of(place))
        if place == EVERY or await admission.comes_within(send, _PATIENCE_S if taken else 0.0):
            await admission.wait_turn(send, deadline)
            return True
        if buffer.view is None or admission.pending_sends.place_of(buffer, record) != place:
            self._end_slice()  # the topic has changed
            return True
        aside = self._aside[place] = SetAside(send, deadline, buffer.view.partition_count)
        self._pending = None
        aside.rows.append((rows, at))
        aside.task = asyncio.create_task(self._append_aside(place, aside))
        aside.task.add_done_callback(_retrieved)
        return False

    def _joins_aside(self, rows: Rows, at: int) -> bool:
        """Whether the record waits behind others that were set aside."""
        if not self._aside:
            return False
        buffer = self._core.accumulator.topic(self._topic)
        place = self._core.admission.pending_sends.place_of(buffer, self._record(rows, at))
        if place not in self._aside:
            return False
        self._aside[place].rows.append((rows, at))
        return True

    async def _append_aside(self, place: int, aside: SetAside) -> None:
        """Append the rows when their turn comes, also those that join them later."""
        admission = self._core.admission
        buffer = self._core.accumulator.topic(self._topic)
        try:
            await admission.wait_turn(aside.send, aside.deadline)
            self._check_open()
            while aside.rows:
                rows, at = aside.rows[0]
                force = aside.send.charge > 0
                with admission.pending_sends.spend(aside.send):
                    appended = self._append_one(rows, at, aside.send, force=force)
                if appended:
                    aside.rows.popleft()
                    await self.yield_if_due()
                    continue
                record = self._record(rows, at)
                if admission.must_wait_for_partition(
                    buffer, record.partition, refreshed=self._refreshed
                ):
                    await self._wait_new_partition(record.partition)
                else:
                    aside.send = self._claim(aside.send, record)
                    await admission.wait_turn(aside.send, self._deadline())
            del self._aside[place]
        finally:
            self._end_turn(aside)

    def _deadline(self) -> float:
        """When a wait that begins now has to end: the waits before the first record is appended end
        together, and each later one has max.block.ms."""
        self._end_call_deadline()
        if self._waits_until is None or self.delivery.records:
            self._waits_until = self._core.admission.deadline()
        return self._waits_until

    def _end_call_deadline(self) -> None:
        """Once records are appended, each wait of the call has max.block.ms of its own."""
        if self.delivery.records and CALL_DEADLINE.get(None) is not None:
            CALL_DEADLINE.set(math.inf)

    async def _wait_new_partition(self, partition: int | None) -> int:
        self._end_call_deadline()
        count = await self._core.admission.wait_new_partition(self._topic, partition)
        self._refreshed = True
        return count

    def _room_for(self, record: Record) -> int:
        """How many bytes to wait for."""
        # Not more than half of what is free: a broker that takes nothing may hold the rest.
        free = self._core.accumulator.buffer_pool.available
        return max(min(self._room, free // 2), record.upper_bound)

    def _claim(self, call: WaitingCall | None, record: Record) -> WaitingCall:
        """See :meth:`PendingSends.claim`."""
        self._end_call_deadline()
        buffer = self._core.accumulator.topic(self._topic)
        sends, room = self._core.admission.pending_sends, self._room_for(record)
        return sends.claim(buffer, call, room, record)

    async def yield_if_due(self) -> None:
        """Let other tasks run, if this call has worked for a millisecond."""
        if self._core.now() >= self._yield_at:
            await asyncio.sleep(0)
            self._check_open()
            self._yield_at = self._core.now() + _SLICE_S

    def broken_off(self, error: E) -> E:
        """The error of a call that breaks off half way: ``error`` with the number of records that
        were handed over, and with their delivery."""
        done = self.delivery.records
        ended = _with_message(
            error, f"{error}; {done} records of the call were handed over, the others were not sent"
        )
        ended.delivery = self.delivery
        return ended


async def send_values(bulk: BulkSend, values: Any, columns: Mapping[str, Any]) -> None:
    """Check and append the records of ``send_many``; the result is ``bulk.delivery``. ``columns``
    has the arguments with an item for each record, by name; None: not given."""
    copied = await _copied(bulk, values, "values")
    items: dict[str, list[Any] | None] = {}
    for name, column in columns.items():
        items[name] = given = None if column is None else await _copied(bulk, column, name)
        if given is not None and len(given) != len(copied):
            raise InvalidRecordError(
                f"{len(given)} {name} for {len(copied)} values: each value needs an item, which "
                "may be None; nothing was sent"
            )
    rows = Values(
        copied,
        items["keys"],
        bulk.shared.partition,
        bulk.shared.timestamp_ms,
        bulk.shared.headers,
        items["timestamps_ms"],
        items["record_headers"],
    )
    await bulk.check(rows)
    try:
        await bulk.append_rows(rows)
        await bulk.finish()
    except KafkaError as error:
        raise bulk.broken_off(error) from error


async def _copied(bulk: BulkSend, items: Iterable[Any], what: str) -> list[Any]:
    """A copy of the items: the caller may change its list while the call waits."""
    check_column(what, items)
    copied, rest = list[Any](), iter(items)
    while part := list(islice(rest, _ITEMS_AT_ONCE)):
        copied += part
        await bulk.yield_if_due()
    return copied


def _retrieved(task: asyncio.Task[None]) -> None:
    """Mark the task's error as retrieved: the call may end without awaiting the task."""
    if not task.cancelled():
        task.exception()


def _as_bytes(item: Any) -> Any:
    """Plain bytes, no subclass: the compiled code accepts only these."""
    return item if item is None or item.__class__ is bytes else bytes(item)


def _with_message(error: E, message: str) -> E:
    """A copy of the error with another message; other callers may have got the original."""
    copied = error.for_one()
    copied.args = (message,)
    return copied
