"""Records in bulk: what goes through the taps, the bytes it becomes, and what is refused."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.direct_append import AppendSlot, TopicAppendSlots
from kafkaclient.producer.bulk.rows import Values
from kafkaclient.wire.murmur2 import partition_for_key
from kafkaclient.wire.records import BATCH_OVERHEAD, BatchBuilder, iter_records

NOW = 1_700_000_000_000
ANY = 2**31

blobs = st.none() | st.binary(max_size=40) | st.sampled_from([bytes(63), bytes(64), bytes(8200)])


class Open:
    """An open batch with a tap."""

    def __init__(self, capacity: int = 100_000, signal_at: int = 1 << 40) -> None:
        self.builder = BatchBuilder(capacity)
        self.result = BatchResult("t")
        self.signalled_at: list[int] = []
        self.slot = AppendSlot(self.builder, self.result, signal_at, self.signal)

    def signal(self) -> None:
        self.signalled_at.append(self.result.count)

    @property
    def content(self) -> bytes:
        if self.builder.count == 0:
            return b""
        if not self.builder.sealed:
            self.builder.seal()
        return bytes(self.builder.buffer())


def taps_of(
    *batches: Open, unkeyed: Open | None = None, ignore_keys: bool = False
) -> TopicAppendSlots:
    slots = TopicAppendSlots(ignore_keys=ignore_keys)
    slots.reset(len(batches))
    for partition, batch in enumerate(batches):
        slots.set(partition, batch.slot)
    if unkeyed is not None:
        slots.set_unkeyed(unkeyed.slot)
    return slots


def values(
    items: list[Any],
    keys: list[Any] | None = None,
    partition: int | None = None,
    timestamp: int | None = None,
    headers: Any = (),
    timestamps: list[Any] | None = None,
    row_headers: list[Any] | None = None,
) -> Values:
    return Values(items, keys, partition, timestamp, headers, timestamps, row_headers)


def test_a_run_of_records_is_accounted_once() -> None:
    batch, runs = Open(), []
    rows = values([b"0", None, b"", b"3"])
    assert len(rows) == 4
    slots = taps_of(unkeyed=batch)
    assert rows.pour(slots, 0, 2, NOW, runs) == 2
    assert rows.pour(slots, 2, 100, NOW + 5, runs) == 4
    assert runs == [(batch.result, 0, 2), (batch.result, 2, 2)]
    assert (batch.result.count, batch.result.live_deliveries) == (4, 4)
    read = list(iter_records(batch.content))
    assert [(r.value, r.timestamp) for r in read] == [
        (b"0", NOW),
        (None, NOW),
        (b"", NOW + 5),
        (b"3", NOW + 5),
    ]


def test_the_rest_has_to_go_the_long_way() -> None:
    """No tap, a cut one, one that is full, a key or value that is not bytes."""
    runs: list[Any] = []
    assert values([b"v"]).pour(taps_of(), 0, 1, NOW, runs) == 0
    assert values([b"v"], [b"k"]).pour(taps_of(), 0, 1, NOW, runs) == 0
    cut = Open()
    cut.slot.invalidate()
    assert values([b"v"]).pour(taps_of(unkeyed=cut), 0, 1, NOW, runs) == 0
    batch = Open()
    assert values([b"v"], partition=1).pour(taps_of(batch), 0, 1, NOW, runs) == 0
    assert values([b"v"], partition=2**40).pour(taps_of(batch), 0, 1, NOW, runs) == 0
    assert runs == []
    small = Open(capacity=100)
    assert values([bytes(10), bytes(100), b""]).pour(taps_of(unkeyed=small), 0, 3, NOW, runs) == 1
    assert runs == [(small.result, 0, 1)]


def test_keys_partitions_and_ignored_keys() -> None:
    keys = [b"a", None, b"b", b"c", None, b"a"]
    batches, unkeyed, runs = [Open() for _ in range(3)], Open(), []
    rows = values([b"%d" % n for n in range(6)], keys)
    assert rows.pour(taps_of(*batches, unkeyed=unkeyed), 0, 6, NOW, runs) == 6
    expected: list[list[Any]] = [[], [], []]
    for n, key in enumerate(keys):
        if key is not None:
            expected[partition_for_key(key, 3)].append(b"%d" % n)
    found = [[r.value for r in iter_records(b.content)] if b.content else [] for b in batches]
    assert found == expected
    assert [r.value for r in iter_records(unkeyed.content)] == [b"1", b"4"]
    assert sum(count for _, _, count in runs) == 6
    one, all_in_one = Open(), Open()
    assert values([b"v"] * 6, keys, partition=0).pour(taps_of(one), 0, 6, NOW, []) == 6
    ignoring = taps_of(unkeyed=all_in_one, ignore_keys=True)
    assert values([b"v"] * 6, keys).pour(ignoring, 0, 6, NOW, []) == 6
    assert one.result.count == all_in_one.result.count == 6


def test_the_tap_signals_once_and_hooks_are_owed_every_record() -> None:
    batch = Open(signal_at=BATCH_OVERHEAD + 30)
    batch.result.on_delivery = lambda _delivery: None
    runs: list[Any] = []
    assert values([bytes(10)] * 5).pour(taps_of(unkeyed=batch), 0, 5, NOW, runs) == 5
    assert batch.signalled_at == [2]
    assert len(batch.result.hooked) == 5
    assert batch.result.live_deliveries == 10  # those of the hook, and who stands for them all
    batch.result.hooked.clear()
    gc.collect()
    assert batch.result.live_deliveries == 5


@given(
    st.lists(st.tuples(blobs, blobs), max_size=30),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3),
    st.none() | st.integers(0, 2**63 - 1),
    st.integers(BATCH_OVERHEAD, 20_000),
)
def test_the_bytes_are_those_of_records_one_by_one(
    records: list[tuple[Any, Any]], headers: Any, timestamp: int | None, capacity: int
) -> None:
    batch, runs = Open(capacity), []
    rows = values([v for _, v in records], [k for k, _ in records], 0, timestamp, tuple(headers))
    done = rows.pour(taps_of(batch), 0, len(records), NOW, runs)
    expected = BatchBuilder(capacity)
    fitting = 0
    for key, value in records:
        if not expected.append(NOW if timestamp is None else timestamp, key, value, headers):
            break
        fitting += 1
    assert done == fitting
    assert (batch.builder.size, batch.builder.count) == (expected.size, expected.count)
    if fitting:
        expected.seal()
        assert batch.content == bytes(expected.buffer())
        assert runs == [(batch.result, 0, fitting)]


some_headers = st.lists(
    st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=3
)
some_time = st.none() | st.integers(0, 2**63 - 1)


@given(
    st.lists(
        st.tuples(
            blobs,
            some_time,
            st.none() | some_headers | some_headers.map(tuple),
        ),
        max_size=30,
    ),
    some_time,
    some_headers,
)
def test_each_record_has_its_own_headers_and_timestamp(
    records: list[Any], timestamp: int | None, headers: Any
) -> None:
    """None stands for what the records share."""
    batch, expected = Open(1_000_000), BatchBuilder(1_000_000)
    count = len(records)
    times, lists = [t for _, t, _ in records], [h for _, _, h in records]
    rows = values(
        [v for v, _, _ in records], None, 0, timestamp, tuple(headers), times, list(lists)
    )
    assert rows.check(0, count, 1_000_000, ANY) == count
    for own in lists:  # what the caller changes later is not sent
        if isinstance(own, list):
            own.append(("later", b""))
    assert rows.pour(taps_of(batch), 0, count, NOW, []) == count
    for own in lists:
        if isinstance(own, list):
            own.pop()
    shared = NOW if timestamp is None else timestamp
    for value, time, own in records:
        in_common = headers if own is None else own
        expected.append(shared if time is None else time, None, value, in_common)
    if count:
        expected.seal()
        assert batch.content == bytes(expected.buffer())


@pytest.mark.parametrize(
    ("timestamp", "headers"),
    [
        (-1, None),
        (2**63, None),
        (1.0, None),
        ("1", None),
        (True, None),
        (None, {"a": b"1"}),
        (None, iter(())),
        (None, [("a", "1")]),
        (None, [("a",)]),
        (None, [["a", b"1"]]),
        (None, [(b"a", b"1")]),
        (None, [("\ud800", b"1")]),
        (None, [("a", bytearray(b"1"))]),
        (None, 5),
        (None, "ab"),
    ],
)
def test_columns_that_need_a_closer_look(timestamp: Any, headers: Any) -> None:
    rows = values([b"v"] * 3, None, 0, None, (), [7, timestamp, 8], [None, headers, ()])
    assert rows.check(0, 3, 1000, ANY) == 1
    assert rows.check(2, 3, 1000, ANY) == 3
    rows.replace(1, b"w", None, 9, (("b", b"2"),))
    assert rows.check(0, 3, 1000, ANY) == 3
    assert rows.record(1) == (b"w", None, 0, 9, (("b", b"2"),))


def test_headers_of_a_row_count_towards_its_size() -> None:
    rows = values([b""] * 2, None, 0, None, (), None, [None, [("name", bytes(100))]])
    assert rows.check(0, 2, 100, ANY) == 1
    assert rows.check(0, 2, 120, ANY) == 2


def test_columns_of_another_length() -> None:
    short: list[dict[str, Any]] = [{"keys": [b"k"]}, {"timestamps": [1]}, {"row_headers": [()]}]
    for column in short:
        with pytest.raises(ValueError, match="as many items"):
            values([b"v", b"w"], **column)


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 65, 120, 8190, 8191, 8192, 8193])
def test_buffers_that_are_exactly_full(size: int, off: int) -> None:
    """At every size at which a length gets another byte."""
    exact = BatchBuilder(1_000_000)
    for _ in range(3):
        exact.append(NOW, b"k", bytes(size))
    batch = Open(exact.size + off)
    rows = values([bytes(size)] * 3, [b"k"] * 3, 0)
    assert rows.pour(taps_of(batch), 0, 3, NOW, []) == (2 if off < 0 else 3)
    assert batch.builder.size <= batch.builder.capacity


def test_checking() -> None:
    rows = values([b"v", bytearray(b"v"), b"v", b"v" * 100], [b"k", b"k", "key", None])
    assert rows.check(0, 4, 1000, ANY) == 1
    assert rows.check(2, 4, 1000, ANY) == 2
    assert rows.check(3, 4, 1000, ANY) == 3 + 1
    rows.replace(1, b"v", b"k", None, ())
    assert rows.check(0, 2, 1000, ANY) == 2
    assert rows.record(1) == (b"v", b"k", None, None, ())
    assert values([b"v"], partition=3).check(0, 1, 1000, 3) == 0
    assert values([b"v"], partition=3).check(0, 1, 1000, 4) == 1


@given(blobs, blobs, st.lists(st.tuples(st.text(max_size=3), blobs), max_size=2))
def test_the_largest_record_is_judged_to_the_byte(key: Any, value: Any, headers: Any) -> None:
    builder = BatchBuilder(1_000_000)
    builder.append(0, key, value, headers)
    empty = BatchBuilder(1_000_000)
    empty.append(0, None, None)
    body = builder.size - BATCH_OVERHEAD - 3
    fields = next(n for n in range(body, body - 6, -1) if length(3 + n) + 3 + n == body + 3)
    rows = values([value], [key], headers=tuple(headers))
    assert rows.check(0, 1, fields, ANY) == 1
    assert rows.check(0, 1, fields - 1, ANY) == 0


def length(size: int) -> int:
    """Bytes of a record's own length."""
    return 1 if size < 64 else 2 if size < 8192 else 3


def test_nothing_is_leaked() -> None:
    """Poured records leave neither objects nor memory behind."""

    def round_of(n: int) -> None:
        batches = [Open(1_000_000) for _ in range(3)]
        slots = taps_of(*batches, unkeyed=batches[0])
        items = [b"%d %d" % (n, i) for i in range(500)]
        keys = [b"key %d" % i if i % 3 else None for i in range(500)]
        own = [[("name", b"%d" % i)] if i % 2 else None for i in range(500)]
        times, shared = [2**40 + i for i in range(500)], (("name", b"content"),)
        rows, runs = values(items, keys, None, None, shared, times, own), []
        assert rows.check(0, 500, 1000, ANY) == 500
        assert rows.pour(slots, 0, 500, NOW, runs) == 500
        values([*items, "bad"]).check(0, 501, 1000, ANY)

    round_of(0)
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start()
    try:
        round_of(1)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for n in range(30):
            round_of(n)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
    finally:
        tracemalloc.stop()
    assert len(gc.get_objects()) - objects < 100
