"""Rows read back are the batches that were added, for all values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import DeliveryTimeoutError
from kafkaclient.hooks import FinishedBatch
from kafkaclient.telemetry.format import SCHEMA, BatchColumns
from tests.telemetry.support import batch

START = 100.0
TIMES = ("created_s", "bound_s", "sent_s")

ints = st.integers(-(2**31) + 1, 2**31 - 1)
times = st.floats(0, 1e6)
words = st.text(max_size=5)
batches = st.builds(
    FinishedBatch,
    topic=words,
    partition=ints,
    broker=ints,
    records=ints,
    bytes=ints,
    attempts=ints,
    base_offset=ints,
    created_s=times,
    bound_s=st.none() | times,
    sent_s=st.none() | times,
    done_s=times,
    queued_batches=st.none() | ints,
    queued_bytes=st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
    in_flight=st.none() | ints,
    window=st.none() | ints,
    bound_by=st.none() | words,
    error=st.none() | st.just(DeliveryTimeoutError("late")),
)


def expected(batch: FinishedBatch, acks: bool) -> dict[str, Any]:
    row = batch._asdict()
    row["done_s"] -= START
    del row["base_offset"]
    row |= {name: None if row[name] is None else row[name] - START for name in TIMES}
    row["acknowledged_s"] = row["done_s"] if acks and batch.error is None else None
    row["error"] = None if batch.error is None else "DeliveryTimeoutError"
    return {"client_id": "me"} | row


@given(st.lists(st.lists(batches, min_size=1, max_size=40), max_size=4), st.booleans())
def test_every_value_and_every_none_is_kept(given: list[list[FinishedBatch]], acks: bool) -> None:
    columns = BatchColumns("me", START, acks=acks)
    for some in given:
        columns.append(some)
    table = columns.table({"k": "v"})
    assert columns.rows == len(table) == sum(map(len, given))
    assert table.schema.equals(SCHEMA.with_metadata({"k": "v"}), check_metadata=True)
    assert table.to_pylist() == [expected(batch, acks) for some in given for batch in some]


def test_a_word_is_kept_once() -> None:
    columns = BatchColumns("me", START, acks=True)
    for topic in ("a", "b", "a", "a"):
        columns.append([batch(topic=topic)])
    (chunk,) = columns.table({})["topic"].chunks
    assert chunk.dictionary.to_pylist() == ["a", "b"]


def test_a_batch_that_does_not_fit_is_refused() -> None:
    columns = BatchColumns("me", START, acks=True)
    with pytest.raises((ValueError, OverflowError)):
        columns.append([batch(), batch(records=2**31)])
    assert columns.rows == 0
