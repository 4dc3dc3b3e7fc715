"""The rows of an Arrow stream, as records in bulk.

Here the columns become Python lists. ``_arrow_rows.pyx`` has the compiled form, with the same names
and behavior: it reads the rows in Arrow's buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.compiled_modules import use_compiled
from kafkaclient.producer.bulk.rows import Rows

if TYPE_CHECKING:
    from kafkaclient.producer.bulk.rows import Row

__all__ = ["Blobs", "Columns", "HeaderLists", "Numbers"]


class Blobs:
    """A column of byte strings. ``layout``: "offsets32", "offsets64", "fixed" or "views"."""

    __slots__ = ("items",)

    def __init__(self, array: Any, layout: str) -> None:
        array.validate(full=True)
        items = array.to_pylist()
        text = any(isinstance(item, str) for item in items)
        self.items: list[bytes | None] = (
            [None if item is None else item.encode() for item in items] if text else items
        )


class Numbers:
    """A column of 64-bit integers."""

    __slots__ = ("items",)

    def __init__(self, array: Any) -> None:
        self.items: list[int | None] = array.to_pylist()


class HeaderLists:
    """A column of lists of headers. ``array`` has the lists; their offsets, less ``base``, are
    indexes of ``names`` and ``contents``. ``entries`` shows which headers are null as a whole."""

    __slots__ = ("items",)

    def __init__(
        self, array: Any, layout: str, base: int, entries: Any, names: Blobs, contents: Blobs
    ) -> None:
        there = entries.is_valid().to_pylist()
        pairs = [
            (name.decode() if name is not None and known else None, content)
            for name, content, known in zip(names.items, contents.items, there, strict=True)
        ]
        offsets, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
        self.items: list[tuple[tuple[str | None, bytes | None], ...]] = []
        for known, first, end in zip(valid, offsets[:-1], offsets[1:], strict=True):
            if known and not base <= first <= end <= base + len(pairs):
                raise ValueError("the offsets of a list column are malformed")
            self.items.append(tuple(pairs[first - base : end - base]) if known else ())


class Columns(Rows):
    """The rows of a piece of an Arrow stream; a column that is None is null everywhere."""

    __slots__ = (
        "_headers",
        "_key",
        "_partition",
        "_partitions",
        "_rows",
        "_timestamp",
        "_timestamps",
        "_value",
    )

    def __init__(
        self,
        rows: int,
        key: Blobs | None,
        value: Blobs | None,
        headers: HeaderLists | None,
        timestamps: Numbers | None,
        partitions: Numbers | None,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> None:
        self._rows = rows
        self._key, self._value, self._headers = key, value, headers
        self._timestamps, self._partitions = timestamps, partitions
        self._timestamp, self._partition = timestamp_ms, partition

    def __len__(self) -> int:
        return self._rows

    def record(self, at: int) -> Row:
        timestamp = None if self._timestamps is None else self._timestamps.items[at]
        partition = None if self._partitions is None else self._partitions.items[at]
        return (
            None if self._value is None else self._value.items[at],
            None if self._key is None else self._key.items[at],
            self._partition if partition is None else partition,
            self._timestamp if timestamp is None else timestamp,
            () if self._headers is None else self._headers.items[at],
        )


use_compiled(globals())
