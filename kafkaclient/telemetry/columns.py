"""The rows of one file, held by column until they are written.

Each column is a typed array. A thread turns the arrays into Arrow's columns without copying. With
lists, the thread would loop over Python objects, and would block the event loop by holding the
interpreter. The arrays are filled with 64 rows at a time, which takes half as long as row by row.
"""

from __future__ import annotations

from array import array
from math import nan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Columns"]

_ROWS_AT_A_TIME = 64


class _Numbers:
    """Numbers of one Arrow type. NaN or the type's smallest integer stands for None."""

    __slots__ = ("_null", "_type", "_values")

    def __init__(self, kind: Any) -> None:
        self._type = kind
        is_float = pa.types.is_floating(kind)
        self._null = nan if is_float else -(2 ** (kind.bit_width - 1))
        self._values: array[Any] = array("d" if is_float else "i" if kind.bit_width == 32 else "q")

    def extend(self, values: Sequence[float | None]) -> None:
        null = self._null
        self._values.extend([null if value is None else value for value in values])

    def arrow(self) -> Any:
        buffer = pa.py_buffer(self._values)
        values = pa.Array.from_buffers(self._type, len(self._values), [None, buffer])
        is_float = pa.types.is_floating(self._type)
        is_null = (
            pc.is_nan(values) if is_float else pc.equal(values, pa.scalar(self._null, self._type))
        )
        return pc.if_else(is_null, pa.scalar(None, self._type), values)


class _Words:
    """Strings with few different values. Each value is stored once."""

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
    """The rows of one file. ``schema`` is an Arrow schema."""

    __slots__ = ("_columns", "_latest", "_packed", "_schema")

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._columns = [
            (_Numbers if pa.types.is_primitive(field.type) else _Words)(field.type)
            for field in schema
        ]
        self._latest: list[Sequence[Any]] = []
        self._packed = 0

    def __len__(self) -> int:
        return self._packed + len(self._latest)

    def append(self, row: Sequence[Any]) -> None:
        self._latest.append(row)
        if len(self._latest) == _ROWS_AT_A_TIME:
            self._pack()

    def table(self) -> Any:
        """The rows as an Arrow table. It shares their memory, so no row may be added later."""
        if self._latest:
            self._pack()
        return pa.table([column.arrow() for column in self._columns], schema=self._schema)

    def _pack(self) -> None:
        for column, values in zip(self._columns, zip(*self._latest, strict=True), strict=True):
            column.extend(values)
        self._packed += len(self._latest)
        self._latest = []
