"""Records in bulk: many at a time, from a list or an Arrow table into the open batches of a topic.

What ``direct_append.py`` does for one record, without a delivery for each. ``_rows.pyx`` has the
compiled form: the same names and behavior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.wire.record_buffer import headers_size
from kafkaclient.wire.records import fields_size

if TYPE_CHECKING:
    from kafkaclient.producer.batches.batch_result import Run
    from kafkaclient.producer.batches.direct_append import AppendSlot, TopicAppendSlots

__all__ = ["Rows", "Values"]

Row: TypeAlias = tuple[Any, Any, int | None, int | None, Any]
"""(value, key, partition, timestamp, headers), as ``send`` takes them."""

_LENGTHS = 11  # bytes: the most that the lengths of key and value, and the header count, take


class Rows:
    """Records to be sent, numbered from 0. The subclasses know where the records are."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def record(self, at: int) -> Row:
        raise NotImplementedError

    def replace(
        self, at: int, value: bytes | None, key: bytes | None, timestamp: int | None, headers: Any
    ) -> None:
        """Replace a record's fields by their serialized, copied or plain form."""

    def check(self, start: int, stop: int, largest: int, partitions: int) -> int:
        """The first row from ``start`` on that cannot be sent as it is, or ``stop``.

        Key, value and headers may take ``largest`` bytes; ``partitions`` is how many there are.
        """
        for at in range(start, min(stop, len(self))):
            value, key, partition, timestamp, headers = self.record(at)
            if not (_plain(value) and _plain(key) and _is_time(timestamp)):
                return at
            if partition is not None and not 0 <= partition < partitions:
                return at
            if headers.__class__ is tuple and not headers:
                if len(key or b"") + len(value or b"") + _LENGTHS <= largest:
                    continue
            elif headers_size(headers) < 0:
                return at
            if fields_size(key, value, headers) > largest:
                return at
        return stop

    def pour(
        self, slots: TopicAppendSlots, start: int, stop: int, now: int, runs: list[Run]
    ) -> int:
        """Append rows through the slots, from ``start`` on. Returns the first row that the slots
        cannot take, or ``stop``. ``runs`` is extended by one :data:`Run` for each batch. ``now`` is
        the timestamp of records that have none."""
        stop = min(stop, len(self))
        touched: list[AppendSlot] = []
        try:
            for at in range(start, stop):
                value, key, partition, timestamp, headers = self.record(at)
                slot = slots.slot_for(partition, key)
                if slot is None or slot._buffer is None:
                    return at
                timestamp = now if timestamp is None else timestamp
                if not slot._buffer.append(timestamp, key, value, headers):
                    return at
                if slot.count_record(timestamp):
                    touched.append(slot)
        finally:
            runs.extend(slot.end_run() for slot in touched)
        return stop


class Values(Rows):
    """Records of lists, and the fields they share. ``keys`` None: no record has a key. An item of
    ``timestamps`` or ``row_headers`` replaces what the records share, unless it is None."""

    __slots__ = (
        "_headers",
        "_keys",
        "_partition",
        "_row_headers",
        "_timestamp",
        "_timestamps",
        "_values",
    )

    def __init__(
        self,
        values: list[Any],
        keys: list[Any] | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Any,
        timestamps: list[Any] | None = None,
        row_headers: list[Any] | None = None,
    ) -> None:
        for column in (keys, timestamps, row_headers):
            if column is not None and len(column) != len(values):
                raise ValueError("each column must have as many items as there are values")
        self._values, self._keys = values, keys
        self._partition, self._timestamp, self._headers = partition, timestamp_ms, headers
        self._timestamps, self._row_headers = timestamps, row_headers

    def __len__(self) -> int:
        return len(self._values)

    def record(self, at: int) -> Row:
        key = None if self._keys is None else self._keys[at]
        timestamp, headers = self._timestamp, self._headers
        if self._timestamps is not None and self._timestamps[at] is not None:
            timestamp = self._timestamps[at]
        if self._row_headers is not None and self._row_headers[at] is not None:
            headers = self._row_headers[at]
        return self._values[at], key, self._partition, timestamp, headers

    def check(self, start: int, stop: int, largest: int, partitions: int) -> int:
        if self._row_headers is not None:  # the caller may change its lists later
            for at in range(start, min(stop, len(self))):
                if self._row_headers[at].__class__ is list:
                    self._row_headers[at] = tuple(self._row_headers[at])
        return super().check(start, stop, largest, partitions)

    def replace(
        self, at: int, value: bytes | None, key: bytes | None, timestamp: int | None, headers: Any
    ) -> None:
        self._values[at] = value
        if self._keys is not None:
            self._keys[at] = key
        if self._timestamps is not None:
            self._timestamps[at] = timestamp
        if self._row_headers is not None:
            self._row_headers[at] = headers


def _plain(item: object) -> bool:
    return item.__class__ is bytes or item is None


def _is_time(item: object) -> bool:
    return item is None or (item.__class__ is int and 0 <= item < 2**63)


use_compiled(globals())
