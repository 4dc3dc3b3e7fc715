"""The way in for many records at once: check them all, then hand them over in slices.

A slice has up to 512 records. From its first record to its last, no other caller appends to the
topic, also while the call waits for metadata or buffer space in the topic's line, or lets the event
loop run, which it does about every millisecond. :meth:`Rows.pour` fills the open batches; a record
that needs a new or a larger batch takes the same way as a record of ``send``.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.errors import InvalidRecordError, KafkaError
from kafkaclient.producer.batches.delivery import Run
from kafkaclient.producer.batches.record import check_target, checked_record, record_of_bytes
from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
from kafkaclient.producer.bulk.rows import Values
from kafkaclient.wire.records import BATCH_OVERHEAD, MAX_RECORD_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.bulk.rows import Rows
    from kafkaclient.producer.pending_sends import PendingSend
    from kafkaclient.producer.runtime import ProducerRuntime
    from kafkaclient.types import HeadersLike

__all__ = ["BulkSend", "send_values"]

E = TypeVar("E", bound=KafkaError)

_TURN = 0.001  # seconds of work after which other tasks of the event loop run
# Records between two looks at the clock, when they are handed over and when they are copied.
_ROWS_AT_ONCE = 512
_ITEMS_AT_ONCE = 8192
_PART_OF_BUFFER = 8
_MOST_PARTITIONS = 2**31


class BulkSend:
    """One call of ``send_many`` or ``send_arrow``.

    ``serialize``: the records are not bytes yet. Raises InvalidRecordError when ``topic``,
    ``partition``, ``timestamp_ms`` or ``headers``, which all records share, are not acceptable.
    """

    def __init__(
        self,
        core: ProducerRuntime,
        config: ProducerConfig,
        wall_clock: Callable[[], float],
        topic: str,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
        serialize: bool = False,
    ) -> None:
        check_target(topic, partition)
        topic = str.__str__(topic)  # without what a subclass, such as an enum, makes of it
        shared = record_of_bytes(
            config, wall_clock, topic, None, None, partition, timestamp_ms, headers
        )
        self.headers = shared.headers
        self.delivery = BulkDelivery(topic)
        self.partitions = _MOST_PARTITIONS
        """How many the topic has, where each row may name its own."""
        self._topic = topic
        self._core = core
        self._config = config
        self._wall_clock = wall_clock
        serialized = config.key_serializer is not None or config.value_serializer is not None
        self._checked = checked_record if serialize else record_of_bytes
        largest = min(config.max_request_size, config.buffer_memory)
        largest -= BATCH_OVERHEAD + MAX_RECORD_OVERHEAD
        self._largest = -1 if serialize and serialized else largest
        # Bytes of buffer space to wait for: one batch, but at most an eighth of buffer.memory.
        self._room = min(config.batch_size, config.buffer_memory // _PART_OF_BUFFER)
        self._turn_ends = core.now() + _TURN
        self._turn: PendingSend | None = None
        """The call's turn in the topic's line, from when it is called to the end of a slice."""
        self._grown = False
        """Whether the call has waited to hear how many partitions the topic has by now."""

    async def wait_for_partitions(self) -> None:
        """Wait until the topic is known: rows name partitions, which are checked beforehand."""
        if self._core.admission.has_waiters(self._topic):
            self._turn = await self._core.admission.turn(self._topic, self._room)
        buffer = self._core.accumulator.topic(self._topic)
        self.partitions = buffer.known_view.partition_count

    async def check(self, rows: Rows, base: int = 0) -> None:
        """Refuse rows that cannot be sent; ``base`` is the number of the first.

        What becomes bytes only now, by a serializer or a copy, takes its place in the rows.
        """
        at, total = 0, len(rows)
        while at < total:
            stop = min(at + _ROWS_AT_ONCE, total)
            at = rows.check(at, stop, self._largest, self.partitions)
            if at < stop:
                await self._look_at(rows, at, base + at)
                at += 1
            await self.yield_if_due()

    async def _look_at(self, rows: Rows, at: int, number: int) -> None:
        try:
            value, key, partition, timestamp_ms, headers = rows.record(at)
            check_target(self._topic, partition)
            if partition is not None and partition >= self.partitions:
                self.partitions = await self._wait_grown(partition)
                self._turn_ends = self._core.now() + _TURN  # others have had their turn
            record = self._checked(
                self._config,
                self._wall_clock,
                self._topic,
                value,
                key,
                partition,
                timestamp_ms,
                headers,
            )
        except InvalidRecordError as error:
            placed = _told(error, f"record {number}: {error}")
            placed.index = number
            raise placed from error
        rows.replace(at, _plain(record.value), _plain(record.key))

    async def append_rows(self, rows: Rows) -> None:
        """Put rows that were checked into batches, in their order.

        Raises what ``send`` raises while it waits; :attr:`delivery` stands for those handed over.
        """
        at, total = 0, len(rows)
        while at < total:
            at = await self._hand_over_slice(rows, at, min(at + _ROWS_AT_ONCE, total))
            self.end_turn()
            await self.yield_if_due()

    def end_turn(self) -> None:
        """Let others go on; to be called in the end, whatever happens."""
        if self._turn is not None:
            self._turn.end()
            self._turn = None

    async def _hand_over_slice(self, rows: Rows, at: int, stop: int) -> int:
        """Hand over one slice. No other record of the topic comes in between, even if the call has
        to wait, or lets other tasks run."""
        while at < stop:
            if self._turn is None and self._core.admission.has_waiters(self._topic):
                await self._wait_turn(self._record(rows, at))
            first, at = at, self._append(rows, at, stop)
            if at == first:
                await self._wait_for_what_lacks(self._record(rows, at))
            elif self._turn is None and self._core.now() >= self._turn_ends:
                self._turn = self._core.admission.join(self._topic)
                await self.yield_if_due()
        return at

    def _append(self, rows: Rows, at: int, stop: int) -> int:
        """Append rows as far as it goes without waiting; returns the first row that is left."""
        force = self._turn is not None and self._turn.has_room
        with self._turn.spend() if self._turn is not None and force else nullcontext():
            while at < stop:
                at = self._pour(rows, at, stop)
                if at == stop or not self._append_one(rows, at, force=force):
                    break
                at, force = at + 1, False
                if self._turn is None:
                    break  # it may be time for others
        return at

    def _pour(self, rows: Rows, at: int, stop: int) -> int:
        slots, runs = self._core.accumulator.topic(self._topic).append_slots, list[Run]()
        try:
            return rows.pour(slots, at, stop, int(self._wall_clock() * 1000), runs)
        finally:
            self.delivery.add(runs)

    def _append_one(self, rows: Rows, at: int, *, force: bool) -> bool:
        """Append one record as ``send`` does, which also opens the fast path for :meth:`_pour`.
        Returns False if the record has to wait. ``force``: append even if the record takes more
        buffer space than the turn was charged for."""
        handle = self._core.admission.append(
            self._topic, self._record(rows, at), force=force, grown=self._grown
        )
        if handle is None:
            return False
        self.delivery.add([handle.hand_on()])  # which stands in for the handle
        return True

    def _record(self, rows: Rows, at: int) -> Record:
        value, key, partition, timestamp_ms, headers = rows.record(at)
        return record_of_bytes(
            self._config,
            self._wall_clock,
            self._topic,
            value,
            key,
            partition,
            timestamp_ms,
            headers,
        )

    async def _wait_for_what_lacks(self, record: Record) -> None:
        """A record could not be appended: its partition is not known, or there is no room."""
        if self._core.admission.is_new_partition(self._topic, record.partition, grown=self._grown):
            self.end_turn()  # who asked before is to go first
            await self._wait_grown(record.partition)
        else:
            await self._wait_turn(record)

    async def _wait_grown(self, partition: int | None) -> int:
        count = await self._core.admission.wait_grown(self._topic, partition)
        self._grown = True
        return count

    async def _wait_turn(self, record: Record) -> None:
        room = max(self._room, record.upper_bound)
        if self._turn is None:
            self._turn = await self._core.admission.turn(self._topic, room)
        else:
            await self._core.admission.wait_more(self._turn, room)

    async def yield_if_due(self) -> None:
        """Let others have their turn, if it is time."""
        if self._core.now() >= self._turn_ends:
            await asyncio.sleep(0)
            self._core.admission.check_open()
            self._turn_ends = self._core.now() + _TURN

    def cut_short(self, error: E) -> E:
        """``error`` with the number of records handed over, and with their delivery."""
        done = self.delivery.records
        told = _told(error, f"{done} records were handed over, the others were not sent: {error}")
        told.delivery = self.delivery
        return told


async def send_values(
    bulk: BulkSend, values: Any, keys: Any, partition: Any, timestamp_ms: Any
) -> None:
    """All of ``send_many`` but the result, which is ``bulk.delivery``."""
    copied = await _copied(bulk, values, "values")
    if keys is not None:
        keys = await _copied(bulk, keys, "keys")
        if len(keys) != len(copied):
            raise InvalidRecordError(
                f"{len(keys)} keys for {len(copied)} values: there must be one for each, which may "
                "be None; nothing was sent"
            )
    rows = Values(copied, keys, partition, timestamp_ms, bulk.headers)
    await bulk.check(rows)
    try:
        await bulk.append_rows(rows)
    except KafkaError as error:
        raise bulk.cut_short(error) from error


async def _copied(bulk: BulkSend, items: Iterable[Any], what: str) -> list[Any]:
    """A list of our own: the caller's may change while we wait."""
    if isinstance(items, (str, bytes, bytearray, memoryview)):
        raise InvalidRecordError(
            f"{what} must be a sequence with an item for each record, not a {type(items).__name__}"
        )
    copied, rest = list[Any](), iter(items)
    while part := list(islice(rest, _ITEMS_AT_ONCE)):
        copied += part
        await bulk.yield_if_due()
    return copied


def _plain(item: Any) -> Any:
    """Bytes, and no subclass: the compiled way looks no further."""
    return item if item is None or item.__class__ is bytes else bytes(item)


def _told(error: E, message: str) -> E:
    """The same error with another message; the given one may be shared."""
    told = error.for_one()
    told.args = (message,)
    return told
