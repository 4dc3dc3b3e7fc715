"""Rows on their way into a file, held by column.

Typed arrays instead of lists: turning them into Arrow's columns takes their memory as it is. That
happens on a thread, and a loop over Python objects there would hold up the event loop for as long
as it keeps the interpreter to itself. They are filled a few rows at a time, which costs half of
filling them row by row.
"""

from __future__ import annotations

from array import array
from math import nan
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Columns"]

_ROWS_AT_A_TIME = 64


class _Column(Protocol):
    def extend(self, values: Sequence[Any]) -> None: ...

    def arrow(self) -> Any: ...


class _Numbers:
    """Whole numbers; the least of the type stands for None."""

    __slots__ = ("_least", "_type", "_values")

    def __init__(self, kind: Any) -> None:
        self._type = kind
        self._values = array("i" if kind.bit_width == 32 else "q")
        self._least = -(2 ** (kind.bit_width - 1))

    def extend(self, values: Sequence[int | None]) -> None:
        least = self._least
        self._values.extend([least if value is None else value for value in values])

    def arrow(self) -> Any:
        values, least = _taken(self._values, self._type), pa.scalar(self._least, self._type)
        return pc.if_else(pc.equal(values, least), pa.scalar(None, self._type), values)


class _Times:
    """Floating-point numbers; NaN stands for None."""

    __slots__ = ("_type", "_values")

    def __init__(self, kind: Any) -> None:
        self._type = kind
        self._values = array("d")

    def extend(self, values: Sequence[float | None]) -> None:
        self._values.extend([nan if value is None else value for value in values])

    def arrow(self) -> Any:
        values = _taken(self._values, self._type)
        return pc.if_else(pc.is_nan(values), pa.scalar(None, self._type), values)


class _Words:
    """Strings of which there are few; each is kept once."""

    __slots__ = ("_codes", "_type", "_words")

    def __init__(self, kind: Any) -> None:
        self._type = kind
        self._codes = _Numbers(pa.int32())
        self._words: dict[str, int] = {}

    def extend(self, values: Sequence[str | None]) -> None:
        words = self._words
        self._codes.extend(
            [None if word is None else words.setdefault(word, len(words)) for word in values]
        )

    def arrow(self) -> Any:
        words = pa.array(list(self._words), pa.string())
        return pa.DictionaryArray.from_arrays(self._codes.arrow(), words).cast(self._type)


class Columns:
    """The rows of one file; ``schema`` is Arrow's."""

    __slots__ = ("_columns", "_latest", "_packed", "_schema")

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._columns = [_column(field.type) for field in schema]
        self._latest: list[Sequence[Any]] = []
        self._packed = 0

    def __len__(self) -> int:
        return self._packed + len(self._latest)

    def append(self, row: Sequence[Any]) -> None:
        self._latest.append(row)
        if len(self._latest) == _ROWS_AT_A_TIME:
            self._pack()

    def table(self) -> Any:
        """The rows as an Arrow table, which shares their memory: nothing may be added after."""
        if self._latest:
            self._pack()
        return pa.table([column.arrow() for column in self._columns], schema=self._schema)

    def _pack(self) -> None:
        for column, values in zip(self._columns, zip(*self._latest, strict=True), strict=True):
            column.extend(values)
        self._packed += len(self._latest)
        self._latest = []


def _column(kind: Any) -> _Column:
    if pa.types.is_integer(kind):
        return _Numbers(kind)
    return _Times(kind) if pa.types.is_floating(kind) else _Words(kind)


def _taken(values: array[Any], kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
