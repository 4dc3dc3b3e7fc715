"""The builder of one record batch: what it takes, when it is full, and the bytes it makes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import (
    ConfigError,
    InvalidRecordError,
    ProducerStateError,
    RecordTooLargeError,
    SerializationError,
)
from kafkaclient.producer.batches.serializers import Serializers
from kafkaclient.producer.bulk.batch_builder import RecordBatchBuilder
from kafkaclient.producer.producer import Producer
from kafkaclient.wire.records import BATCH_OVERHEAD, BatchBuilder, iter_records

NOW_MS = 1_700_000_000_500
BOOTSTRAP = "localhost:9092"


def config_of(**options: Any) -> ProducerConfig:
    return ProducerConfig.build(BOOTSTRAP, options)


def builder_of(size: int | None = None, **options: Any) -> RecordBatchBuilder:
    config = config_of(**options)
    return RecordBatchBuilder(config, lambda: NOW_MS / 1000, size, Serializers.of(config))


def content(batch: RecordBatchBuilder) -> bytes:
    records = batch.take(config_of(), "t", None).batch
    assert records is not None
    records.seal()
    return bytes(records.buffer())


fields = st.none() | st.binary(max_size=40) | st.sampled_from([bytes(63), bytes(64), bytes(8200)])
header_lists = st.lists(
    st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=9)), max_size=2
)
times = st.none() | st.integers(0, 2**63 - 1)


@given(
    st.lists(st.tuples(fields, fields, times, header_lists), min_size=1, max_size=30),
    st.integers(0, 20_000),
)
def test_it_takes_what_one_batch_of_this_size_holds(records: list[Any], batch_size: int) -> None:
    """The first record always; then as many as an encoder of this capacity takes."""
    batch = builder_of(batch_size)
    expected = BatchBuilder(100_000)
    for value, key, timestamp, headers in records:
        time = NOW_MS if timestamp is None else timestamp
        trial = BatchBuilder(max(batch_size, BATCH_OVERHEAD))
        for r in iter_records(_sealed(expected)) if expected.count else ():
            trial.append(r.timestamp, r.key, r.value, r.headers)
        fits = not expected.count or trial.size == expected.size
        fits = fits and (not expected.count or bool(trial.append(time, key, value, headers)))
        before = batch.size, batch.record_count
        assert batch.append(value, key, timestamp_ms=timestamp, headers=headers) is fits
        if fits:
            expected = _with(expected, time, key, value, headers)
        else:
            assert (batch.size, batch.record_count) == before
    assert (batch.size, batch.record_count) == (expected.size, expected.count)
    assert content(batch) == bytes(_sealed(expected))


def _with(batch: BatchBuilder, *record: Any) -> BatchBuilder:
    """A copy of the batch with another record: a sealed one takes none."""
    longer = BatchBuilder(100_000)
    for r in iter_records(_sealed(batch)) if batch.count else ():
        longer.append(r.timestamp, r.key, r.value, r.headers)
    assert longer.append(*record)
    return longer


def _sealed(batch: BatchBuilder) -> memoryview:
    if not batch.sealed:
        batch.seal()
    return batch.buffer()


def test_the_first_record_fits_up_to_the_largest_request() -> None:
    batch = builder_of(500, max_request_size=2000)
    with pytest.raises(
        RecordTooLargeError, match=r"a record of a batch takes up to .* max\.request"
    ):
        batch.append(bytes(2000))
    assert batch.record_count == 0
    assert batch.append(bytes(1900))
    assert not batch.append(b"")
    with pytest.raises(RecordTooLargeError):  # no batch at all can hold it
        batch.append(bytes(2000))


@pytest.mark.parametrize(
    ("options", "batch_size", "limit"),
    [
        ({}, None, 16_384),
        ({"batch_size": 1000}, None, 1000),
        ({"batch_size": 1000}, 3000, 3000),
        ({"max_request_size": 2000}, 3000, 2000),
        ({"buffer_memory": 2000}, 3000, 2000),
    ],
)
def test_the_limit(options: Any, batch_size: int | None, limit: int) -> None:
    batch = builder_of(batch_size, **options)
    while batch.append(b""):
        pass
    assert limit - 8 < batch.size <= limit


@pytest.mark.parametrize("batch_size", [-1, 1.5, "large"])
def test_a_limit_that_is_none(batch_size: Any) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        Producer(BOOTSTRAP).create_batch(batch_size=batch_size)


@pytest.mark.parametrize(
    "record",
    [
        {"value": "text"},
        {"key": 5},
        {"timestamp_ms": -1},
        {"timestamp_ms": 2**63},
        {"timestamp_ms": 1.5},
        {"headers": [("a",)]},
        {"headers": [(b"a", b"1")]},
        {"headers": {"a": "1"}},
    ],
)
def test_a_record_that_is_none_changes_nothing(record: Any) -> None:
    batch = builder_of()
    batch.append(b"first")
    size = batch.size
    with pytest.raises(InvalidRecordError):
        batch.append(**record)
    assert (batch.size, batch.record_count) == (size, 1)
    assert batch.append(b"second")


def test_what_the_caller_changes_later_is_not_sent() -> None:
    batch, value, headers = builder_of(), bytearray(b"value"), [("a", b"1")]
    batch.append(value, memoryview(b"key"), headers=headers)
    value[:] = b"other"
    headers.clear()
    (record,) = iter_records(content(batch))
    assert (record.value, record.key, record.headers) == (b"value", b"key", (("a", b"1"),))


def test_serializers_are_applied_once() -> None:
    asked: list[Any] = []

    def serializer(item: Any) -> bytes:
        asked.append(item)
        return str(item).encode()

    batch = builder_of(key_serializer=serializer, value_serializer=serializer)
    batch.append({"a": 1}, 7)
    batch.append(None, None)
    assert asked == [7, {"a": 1}]
    assert [(r.key, r.value) for r in iter_records(content(batch))] == [
        (b"7", b"{'a': 1}"),
        (None, None),
    ]


def test_a_serializer_that_fails() -> None:
    batch = builder_of(value_serializer=lambda item: item / 0)
    with pytest.raises(SerializationError, match="the value of a record of a batch"):
        batch.append(5)
    assert batch.record_count == 0


def test_closing() -> None:
    batch = builder_of()
    batch.append(b"v")
    assert not batch.closed
    assert repr(batch) == f"<RecordBatchBuilder 1 records, {batch.size} B, open>"
    batch.close()
    batch.close()
    assert batch.closed
    assert repr(batch).endswith("closed>")
    with pytest.raises(ProducerStateError, match="not appended: the batch is closed"):
        batch.append(b"w")
    assert batch.take(config_of(), "t", 3).batch is not None


def test_a_batch_is_taken_once() -> None:
    batch = builder_of()
    batch.append(b"v", timestamp_ms=77)
    record = batch.take(config_of(), "t", 3)
    assert (record.timestamp, record.partition, record.upper_bound) == (77, 3, batch.size)
    assert repr(batch).endswith("sent>")
    with pytest.raises(ProducerStateError, match="nothing was sent: the batch was sent already"):
        batch.take(config_of(), "t", 3)
    with pytest.raises(ProducerStateError, match="not appended: the batch was sent already"):
        batch.append(b"w")
    batch.give_back()
    assert batch.take(config_of(), "t", None).batch is record.batch


def test_what_is_refused_leaves_the_batch_open() -> None:
    batch = builder_of()
    with pytest.raises(InvalidRecordError, match="the batch has no records"):
        batch.take(config_of(), "t", None)
    batch.append(bytes(1000))
    refused: list[Any] = [("", None), ("t", -1), ("t", "0"), (5, None)]
    for topic, partition in refused:
        with pytest.raises(InvalidRecordError):
            batch.take(config_of(), topic, partition)
    for option in ("max_request_size", "buffer_memory"):
        with pytest.raises(RecordTooLargeError, match="more than the 1000"):
            batch.take(config_of(**{option: 1000}), "t", None)
    assert not batch.closed
    assert batch.append(b"v")


def test_no_copies() -> None:
    for spoil in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="sent once"):
            spoil(builder_of())  # type: ignore[operator]
