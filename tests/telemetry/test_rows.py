"""Rows read back are the rows that were added, for all values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.telemetry.rows import SCHEMA, BatchRow, Columns

ints = st.integers(-(2**31) + 1, 2**31 - 1)
longs = st.integers(-(2**63) + 1, 2**63 - 1)
times = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(max_size=5)


def values_of(field: Any) -> st.SearchStrategy[Any]:
    kinds = {"int32": ints, "int64": longs, "double": times}
    return st.none() | kinds.get(str(field.type), words)


rows = st.lists(st.tuples(*map(values_of, SCHEMA)), max_size=200)


@given(rows)
def test_every_value_and_every_none_is_kept(rows: list[tuple[Any, ...]]) -> None:
    columns = Columns(SCHEMA)
    for row in rows:
        columns.append(row)
    assert len(columns) == len(rows)
    table = columns.table()
    assert table.schema == SCHEMA
    assert [tuple(row.values()) for row in table.to_pylist()] == rows


def test_a_word_is_kept_once() -> None:
    columns = Columns(SCHEMA)
    for topic in ("a", "b", "a", "a"):
        columns.append((None, topic, *[None] * (len(SCHEMA) - 2)))
    (chunk,) = columns.table()["topic"].chunks
    assert chunk.dictionary.to_pylist() == ["a", "b"]


def test_the_files_have_the_columns_of_a_row() -> None:
    assert tuple(SCHEMA.names) == BatchRow._fields


def test_a_row_of_another_length_is_refused() -> None:
    columns = Columns(SCHEMA)
    columns.append(("me", "t"))
    with pytest.raises(ValueError, match="zip"):
        columns.table()
