"""The fast path: what goes through a tap, what has to go the long way, and when a tap is cut."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import InvalidRecordError
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import Delivery
from kafkaclient.producer.batches.direct_append import AppendSlot, DirectAppend, TopicAppendSlots
from kafkaclient.producer.batches.record import RawRecord, Record, serialized_record
from kafkaclient.producer.batches.serializers import Serializers
from kafkaclient.wire.murmur2 import partition_for_key
from kafkaclient.wire.records import BATCH_OVERHEAD, BatchBuilder, iter_records

if TYPE_CHECKING:
    from kafkaclient.types import SerializationContext

LONG_WAY = "the long way"


class Sending(DirectAppend):
    """A fast path whose long way says so."""

    def __init__(self, slots: dict[str, TopicAppendSlots], **options: Any) -> None:
        arguments = {"largest": 10_000, "wall_clock": lambda: 1.5} | options
        self._open_direct_append(slots, asyncio.get_running_loop(), **arguments)

    async def _append(self, *_: Any) -> Any:
        await asyncio.sleep(0)
        return LONG_WAY

    def _send_slowly(self, *_: Any) -> Any:
        return LONG_WAY


class Open:
    """An open batch with a tap."""

    def __init__(self, capacity: int = 10_000, signal_at: int = 1_000_000) -> None:
        self.builder = BatchBuilder(capacity)
        self.result = BatchResult("t")
        self.signals = 0
        self.slot = AppendSlot(self.builder, self.result, signal_at, self.signal)

    def signal(self) -> None:
        self.signals += 1

    @property
    def values(self) -> list[Any]:
        self.builder.seal()
        return [record.value for record in iter_records(self.builder.buffer())]


@pytest.fixture
def slots() -> TopicAppendSlots:
    slots = TopicAppendSlots()
    slots.reset(3)
    return slots


async def test_unkeyed_records_go_through_their_tap(slots: TopicAppendSlots) -> None:
    batch = Open()
    slots.set_unkeyed(batch.slot)
    sending = Sending({"t": slots})
    deliveries = [sending.send_nowait("t", b"%d" % n) for n in range(3)]
    assert [type(delivery) for delivery in deliveries] == [Delivery] * 3
    batch.result.resolve(100)
    assert [d.result() for d in deliveries] == [("t", -1, 100 + n, 1500, 0, -1) for n in range(3)]
    assert batch.values == [b"0", b"1", b"2"]


async def test_send_is_a_coroutine_that_appends_when_it_runs(slots: TopicAppendSlots) -> None:
    batch = Open()
    slots.set_unkeyed(batch.slot)
    sending = Sending({"t": slots})
    assert inspect.iscoroutinefunction(sending.send)
    handed_over = asyncio.create_task(sending.send("t", b"task"))
    assert type(await sending.send("t", b"awaited")) is Delivery
    assert type(await handed_over) is Delivery
    assert await sending.send("other", b"long") == LONG_WAY
    waiting = asyncio.create_task(sending.send("other", b"cancelled"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert batch.values == [b"awaited", b"task"]


async def test_a_send_that_nothing_awaits_is_reported(slots: TopicAppendSlots) -> None:
    with pytest.warns(RuntimeWarning, match="never awaited"):
        Sending({"t": slots}).send("t", b"forgotten")


async def test_keys_and_partitions_have_taps_of_their_own(slots: TopicAppendSlots) -> None:
    batches = [Open() for _ in range(3)]
    for partition, batch in enumerate(batches):
        slots.set(partition, batch.slot)
    sending = Sending({"t": slots})
    expected: list[list[bytes]] = [[], [], []]
    for n in range(30):
        key, value = b"key %d" % n, b"%d" % n
        assert sending.send_nowait("t", value, key) != LONG_WAY
        expected[partition_for_key(key, 3)].append(value)
    assert sending.send_nowait("t", b"chosen", partition=1) != LONG_WAY
    assert sending.send_nowait("t", b"chosen", b"key", partition=1) != LONG_WAY
    expected[1] += [b"chosen", b"chosen"]
    assert [batch.values for batch in batches] == expected
    assert sending.send_nowait("t", b"no tap for these") == LONG_WAY


async def test_ignored_keys() -> None:
    slots, batch = TopicAppendSlots(ignore_keys=True), Open()
    slots.reset(3)
    slots.set_unkeyed(batch.slot)
    sending = Sending({"t": slots})
    sending.send_nowait("t", b"v", b"key")
    assert batch.values == [b"v"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "unknown"},
        {"topic": 5},
        {"value": "text"},
        {"value": bytearray(101)},
        {"value": type("Bytes", (bytes,), {})(b"subclass")},
        {"value": bytes(101)},
        {"value": bytes(60), "key": bytes(60), "partition": 0},
        {"key": "text"},
        {"key": b"no tap"},
        {"partition": 3},
        {"partition": -1},
        {"partition": True},
        {"partition": 1.0},
        {"partition": 2**70},
        {"timestamp_ms": -1},
        {"timestamp_ms": 2**63},
        {"timestamp_ms": 1.5},
        {"headers": [("name", "text")]},
        {"headers": [("name", bytearray(b"may change"))]},
        {"headers": [(b"name", b"content")]},
        {"headers": [("\ud800", b"content")]},
        {"headers": [("name",)]},
        {"headers": [["name", b"content"]]},
        {"headers": [("name", bytes(100))]},
        {"headers": range(0)},
        {"headers": 5},
    ],
    ids=repr,
)
async def test_what_is_unusual_goes_the_long_way(
    arguments: dict[str, Any], slots: TopicAppendSlots
) -> None:
    batch = Open()
    slots.set_unkeyed(batch.slot)
    slots.set(0, batch.slot)
    sending = Sending({"t": slots}, largest=100)
    for topic_is_known in (True, False):
        if not topic_is_known:
            slots.reset(0)
        call = {"topic": "t", "value": b"v", "headers": ()} | arguments
        assert sending.send_nowait(call.pop("topic"), **call) == LONG_WAY
    assert batch.builder.count == batch.result.count == 0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, []),
        ([], []),
        ({}, []),
        ({"name": b"content", "none": None}, [("name", b"content"), ("none", None)]),
        ([("n\u00e4me", b""), ("", None)], [("n\u00e4me", b""), ("", None)]),
        ((("twice", b"1"), ("twice", b"2")), [("twice", b"1"), ("twice", b"2")]),
    ],
    ids=repr,
)
async def test_headers(slots: TopicAppendSlots, headers: Any, expected: list[Any]) -> None:
    batch = Open()
    slots.set_unkeyed(batch.slot)
    sending = Sending({"t": slots})
    assert sending.send_nowait("t", b"v", headers=headers) != LONG_WAY
    batch.builder.seal()
    (record,) = iter_records(batch.builder.buffer())
    assert list(record.headers) == expected


@pytest.mark.parametrize("buffer", [bytearray, lambda data: memoryview(bytearray(data))])
async def test_buffers_that_may_change_are_copied(slots: TopicAppendSlots, buffer: Any) -> None:
    batch = Open()
    slots.set(1, batch.slot)
    sending = Sending({"t": slots})
    value, key = buffer(b"value"), buffer(b"key")
    assert sending.send_nowait("t", value, key, partition=1) != LONG_WAY
    value[:], key[:] = bytes(5), bytes(3)
    assert batch.values == [b"value"]


async def test_serializers_are_called_once(slots: TopicAppendSlots) -> None:
    """Also if the record has to take the slow way after all. With a partition that is not known,
    the slow way refuses the record before they are called."""
    batch, calls, slow = Open(capacity=100), [], []

    class Serializing(Sending):
        def _send_slowly(self, raw: RawRecord) -> Any:
            slow.append(raw)
            return LONG_WAY

    def serialize(topic: str, value: Any, key: Any, headers: Any) -> tuple[Any, Any, Any]:
        calls.append((topic, value, key))
        return bytearray(value.encode()), key, headers

    slots.set_unkeyed(batch.slot)
    sending = Serializing({"t": slots}, serialize=serialize)
    assert sending.send_nowait("t", "fits") != LONG_WAY
    assert sending.send_nowait("t", "fits not" * 10) == LONG_WAY
    assert sending.send_nowait("t", "v", partition=3) == LONG_WAY
    assert sending.send_nowait("unknown", "v") == LONG_WAY
    assert calls == [("t", "fits", None), ("t", "fits not" * 10, None)]
    assert [(raw.value, raw.in_bytes) for raw in slow] == [
        (b"fits not" * 10, True),
        ("v", False),
        ("v", False),
    ]
    assert batch.values == [b"fits"]


async def test_a_serializer_may_close_the_slots(slots: TopicAppendSlots) -> None:
    batch, known = Open(), {"t": slots}

    def serialize(_topic: str, value: Any, key: Any, headers: Any) -> tuple[Any, Any, Any]:
        known.clear()  # as when a record begins to wait
        return value, key, headers

    slots.set_unkeyed(batch.slot)
    assert Sending(known, serialize=serialize).send_nowait("t", b"v") == LONG_WAY
    assert batch.builder.count == 0


async def test_a_failing_serializer_leaves_no_trace(slots: TopicAppendSlots) -> None:
    batch = Open()
    slots.set_unkeyed(batch.slot)

    def failing(*_: Any) -> Any:
        raise RuntimeError("cannot")

    with pytest.raises(RuntimeError, match="cannot"):
        Sending({"t": slots}, serialize=failing).send_nowait("t", b"v")
    assert batch.builder.count == batch.result.count == 0


class Subclass(bytes):
    """Bytes that are not plain."""


buffers = st.none() | st.binary(max_size=70).flatmap(
    lambda data: st.sampled_from([data, bytearray(data), memoryview(data), Subclass(data)])
)
odd = st.sampled_from(["text", 5, [b"list"], 1.5])
names = st.text(max_size=5) | st.sampled_from(["\ud800", "\u00fc" * 40, b"bytes", None])
pairs = st.tuples(names, buffers) | st.tuples(st.text(max_size=3), buffers | odd)
header_forms = (
    st.none()
    | st.lists(pairs, max_size=3).flatmap(lambda h: st.sampled_from([h, tuple(h)]))
    | st.dictionaries(names, buffers, max_size=3)
    | st.sampled_from([5, "ab", [()], [("a",)], [["a", b"1"]], [("a", b"1", b"2")], [b"ab"]])
)
timestamp_forms = (
    st.none()
    | st.integers(0, 2**63 - 1)
    | st.sampled_from([-1, 2**63, 2**70, -(2**70), True, 1.5, "1"])
)


@given(
    st.lists(
        st.tuples(
            buffers | odd,
            buffers | odd,
            st.none() | st.sampled_from([0, 1, 2, 3, -1, True, 2**70, "0"]),
            timestamp_forms,
            header_forms,
        ),
        max_size=8,
    ),
    st.integers(150, 1000),
    st.sampled_from(["none", "functions", "with context"]),
)
def test_both_ways_lead_to_the_same(
    records: list[tuple[Any, ...]], limit: int, given_serializers: str
) -> None:
    """The same bytes, and the same errors, whether records take the fast or the slow way."""
    options: dict[str, Any] = {"max_request_size": limit}
    if given_serializers != "none":
        serializer = _serialized if given_serializers == "functions" else _AddsHeader()
        options |= {"value_serializer": serializer, "key_serializer": serializer}
    config = ProducerConfig.build(None, {"bootstrap_servers": "localhost:9092", **options})
    serializers = Serializers.of(config)

    def slowly(builder: BatchBuilder, raw: RawRecord) -> str:
        try:
            record = serialized_record(config, lambda: 1.5, raw, serializers)
            assert isinstance(record, Record)
        except InvalidRecordError as error:
            return f"{type(error).__name__}: {error}"
        return "full" if not builder.append(*record[:4]) else "appended"

    class Both(Sending):
        def _send_slowly(self, raw: RawRecord) -> Any:
            batch.result.count += (did := slowly(batch.builder, raw)) == "appended"
            return did

    async def send_all() -> list[str]:
        slots = TopicAppendSlots()
        slots.reset(3)
        for partition in range(3):
            slots.set(partition, batch.slot)
        slots.set_unkeyed(batch.slot)
        apply = None if serializers is None else serializers.apply
        sending = Both({"t": slots}, largest=limit - 128, serialize=apply)
        outcomes = []
        for value, key, partition, timestamp, headers in records:
            try:
                done = sending.send_nowait(
                    "t", value, key, partition=partition, timestamp_ms=timestamp, headers=headers
                )
            except InvalidRecordError as error:
                done = f"{type(error).__name__}: {error}"
            outcomes.append("appended" if isinstance(done, Delivery) else done)
        return outcomes

    batch, expected = Open(capacity=700), BatchBuilder(700)
    assert asyncio.run(send_all()) == [slowly(expected, RawRecord("t", *r)) for r in records]
    assert batch.result.count == batch.builder.count == expected.count
    if expected.count:
        expected.seal()
        batch.builder.seal()
        assert bytes(batch.builder.buffer()) == bytes(expected.buffer())


class _AddsHeader:
    def serialize(self, item: Any, context: SerializationContext) -> Any:
        context.headers.append((context.field, b"serialized"))
        return _serialized(item)


def _serialized(item: Any) -> Any:
    if isinstance(item, float):
        raise TypeError("no floats")
    return item.encode() if isinstance(item, str) else item


async def test_timestamps(slots: TopicAppendSlots) -> None:
    batch = Open()
    slots.set_unkeyed(batch.slot)
    sending = Sending({"t": slots}, wall_clock=time.time)
    before = int(time.time() * 1000)
    stamped = [sending.send_nowait("t", b"", timestamp_ms=ms) for ms in (0, 2**62)]
    now = sending.send_nowait("t", b"")
    batch.result.resolve(0)
    assert [delivery.result().timestamp for delivery in stamped] == [0, 2**62]
    assert before <= now.result().timestamp <= int(time.time() * 1000)


async def test_a_tap_that_is_cut_lets_nothing_in(slots: TopicAppendSlots) -> None:
    batch = Open()
    slots.set_unkeyed(batch.slot)
    sending = Sending({"t": slots})
    sending.send_nowait("t", b"first")
    batch.slot.invalidate()
    assert sending.send_nowait("t", b"second") == LONG_WAY
    assert batch.values == [b"first"]


async def test_closed_taps_let_nothing_in(slots: TopicAppendSlots) -> None:
    batch = Open()
    slots.set_unkeyed(batch.slot)
    sending = Sending({"t": slots})
    sending._close_direct_append()
    assert sending.send_nowait("t", b"late") == LONG_WAY


async def test_a_full_batch_is_told_of_once(slots: TopicAppendSlots) -> None:
    batch = Open(signal_at=200)
    slots.set_unkeyed(batch.slot)
    sending, signals = Sending({"t": slots}), []
    for _ in range(30):
        sending.send_nowait("t", bytes(20))
        signals.append((batch.builder.size >= 200, batch.signals))
    assert set(signals) == {(False, 0), (True, 1)}


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=30), capacity=st.integers(61, 700))
def test_no_record_goes_beyond_the_capacity(sizes: list[int], capacity: int) -> None:
    """At every size: what is taken is all there, what is refused leaves no trace."""

    async def fill() -> None:
        slots, batch = TopicAppendSlots(), Open(capacity)
        slots.reset(1)
        slots.set_unkeyed(batch.slot)
        sending, taken = Sending({"t": slots}), []
        for number, size in enumerate(sizes):
            value = bytes([number]) * size
            if sending.send_nowait("t", value) != LONG_WAY:
                taken.append(value)
        assert batch.builder.size <= capacity
        assert batch.builder.count == batch.result.count == len(taken)
        if taken:
            assert batch.values == taken
            assert len(batch.builder.buffer()) == batch.builder.size
        else:
            assert batch.builder.size == BATCH_OVERHEAD

    asyncio.run(fill())


async def test_another_event_loop_goes_the_long_way(slots: TopicAppendSlots) -> None:
    """Where it is told off; also in the same thread, and right after a record went through."""
    batch = Open()
    slots.set_unkeyed(batch.slot)
    sending = Sending({"t": slots})
    assert sending.send_nowait("t", b"at home") != LONG_WAY
    found = []

    async def elsewhere() -> None:
        found.append(sending.send_nowait("t", b"elsewhere"))

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    thread.join()
    assert found == [LONG_WAY]
    await asyncio.sleep(0)
    home = asyncio.get_running_loop()
    other = asyncio.new_event_loop()
    asyncio._set_running_loop(other)
    try:
        assert sending.send_nowait("t", b"another loop") == LONG_WAY
    finally:
        asyncio._set_running_loop(home)
        other.close()
    assert batch.values == [b"at home"]


@pytest.mark.parametrize("policy", ["asyncio", "uvloop"])
def test_a_loop_that_does_not_run_is_nobodys(slots: TopicAppendSlots, policy: str) -> None:
    """Right after a record went through: neither without a loop, nor in another one."""
    new_loop = asyncio.new_event_loop
    if policy == "uvloop":
        new_loop = pytest.importorskip("uvloop").new_event_loop
    batch = Open()
    slots.set_unkeyed(batch.slot)

    async def main(sending: Sending | None = None) -> tuple[Sending, Any]:
        sending = sending or Sending({"t": slots})
        return sending, sending.send_nowait("t", b"v")

    home, other = new_loop(), new_loop()
    sending, told = home.run_until_complete(main())
    assert told != LONG_WAY
    assert sending.send_nowait("t", b"no loop") == LONG_WAY
    assert other.run_until_complete(main(sending))[1] == LONG_WAY
    other.close()
    assert home.run_until_complete(main(sending))[1] != LONG_WAY
    home.close()
    assert sending.send_nowait("t", b"closed") == LONG_WAY
    assert batch.values == [b"v", b"v"]


async def test_nothing_is_left_behind(slots: TopicAppendSlots) -> None:
    """Sending for a while leaves no objects, and a batch with a tap needs no garbage collector."""
    sending = Sending({"t": slots})

    def send_some() -> None:
        batch = Open(100_000)
        slots.set_unkeyed(batch.slot)
        held = [sending.send_nowait("t", b"value", b"key", partition=None) for _ in range(10)]
        held += [sending.send_nowait("t", b"value") for _ in range(500)]
        assert batch.result.live_deliveries == 500
        del held
        assert batch.result.live_deliveries == 0
        batch.slot.invalidate()

    send_some()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(50):
            send_some()
        assert len(gc.get_objects()) - before < 20
    finally:
        gc.enable()
