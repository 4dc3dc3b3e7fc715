"""Records in bulk: many at a time, from a list or an Arrow table into the open batches of a topic.

What ``direct_append.py`` does for one record, without a delivery for each. ``_rows.pyx`` has the
compiled form: the same names and behavior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.wire.records import fields_size

if TYPE_CHECKING:
    from kafkaclient.producer.batches.delivery import Run
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

    def replace(self, at: int, value: bytes | None, key: bytes | None) -> None:
        """Replace a record's value and key by their serialized or copied form."""

    def check(self, start: int, stop: int, largest: int, partitions: int) -> int:
        """The first row from ``start`` on that cannot be sent as it is, or ``stop``.

        Key, value and headers may take ``largest`` bytes; ``partitions`` is how many there are.
        """
        for at in range(start, min(stop, len(self))):
            value, key, partition, timestamp, headers = self.record(at)
            if not (_plain(value) and _plain(key)) or (timestamp or 0) < 0:
                return at
            if partition is not None and not 0 <= partition < partitions:
                return at
            if not headers and len(key or b"") + len(value or b"") + _LENGTHS <= largest:
                continue
            if any(name is None for name, _ in headers):
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
    """Records of two lists, and the fields they share. ``keys`` None: no record has a key."""

    __slots__ = ("_headers", "_keys", "_partition", "_timestamp", "_values")

    def __init__(
        self,
        values: list[Any],
        keys: list[Any] | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Any,
    ) -> None:
        if keys is not None and len(keys) != len(values):
            raise ValueError("there must be as many keys as values")
        self._values, self._keys = values, keys
        self._partition, self._timestamp, self._headers = partition, timestamp_ms, headers

    def __len__(self) -> int:
        return len(self._values)

    def record(self, at: int) -> Row:
        key = None if self._keys is None else self._keys[at]
        return self._values[at], key, self._partition, self._timestamp, self._headers

    def replace(self, at: int, value: bytes | None, key: bytes | None) -> None:
        self._values[at] = value
        if self._keys is not None:
            self._keys[at] = key


def _plain(item: object) -> bool:
    return item.__class__ is bytes or item is None


use_compiled(globals())
