"""Records in bulk through whole producers: waiting, failing, being cancelled, beside others."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import (
    BufferFullError,
    InvalidRecordError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    RecordTooLargeError,
    SerializationError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import run_virtual, virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import OffsetRange
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer, Values

BUFFER = 65_536


def logged(fake: FakeCluster, partitions: int) -> list[bytes | None]:
    return [record.value for p in range(partitions) for record in fake.log("t", p)]


def numbered(count: int, size: int = 100) -> list[bytes]:
    return [b"%0*d" % (size, n) for n in range(count)]


# --- what arrives -------------------------------------------------------------------------------


@virtual_time
async def test_all_records_arrive_in_order(producing: StartProducer, values: Values) -> None:
    fake, sent = one_topic(1, brokers=1), numbered(5000)
    async with producing(fake) as producer:
        delivery = await producer.send_many("t", iter(sent))
        assert (delivery.records, delivery.done()) == (5000, False)
        metadata = await delivery
        assert metadata == ("t", 5000, {0: (OffsetRange(0, 5000),)})
        assert (await (await producer.send_many("t", ()))).records == 0
    assert values(fake, "t") == sent


@virtual_time
async def test_a_record_has_all_that_was_given(producing: StartProducer) -> None:
    fake = one_topic(3, brokers=1)
    async with producing(fake, wall_clock=lambda: 12.5) as producer:
        headers = {"a": b"1", "b": None}
        for timestamp in (None, 77):
            delivery = await producer.send_many(
                "t",
                (b"v", None, bytearray(b"w")),
                keys=[b"k", memoryview(b"l"), None],
                partition=2,
                timestamp_ms=timestamp,
                headers=headers,
            )
            assert (await delivery).partitions.keys() == {2}
    expected = [(b"v", b"k"), (None, b"l"), (b"w", None)] * 2
    read = fake.log("t", 2)
    assert [(r.value, r.key) for r in read] == expected
    assert {r.headers for r in read} == {(("a", b"1"), ("b", None))}
    assert [r.timestamp for r in read] == [12_500] * 3 + [77] * 3


@virtual_time
async def test_each_record_has_its_own_headers_and_timestamp(producing: StartProducer) -> None:
    """In any form that ``send`` takes; None stands for what the call gives to all records."""
    fake = one_topic(1, brokers=1)
    first: list[Any] = [("a", b"1")]
    async with producing(fake, wall_clock=lambda: 12.5) as producer:
        for shared in (None, 77):
            delivery = await producer.send_many(
                "t",
                [b"%d" % n for n in range(6)],
                timestamps_ms=iter([1, None, 2**62, 4, None, 6]),
                record_headers=(
                    first,
                    None,
                    {"b": bytearray(b"2")},
                    (),
                    iter([("c", None), ("c", b"3")]),
                    [["d", b"4"]],
                ),
                timestamp_ms=shared,
                headers={"all": b"0"},
            )
            first.append(("later", b""))
            assert (await delivery).records == 6
            first.pop()
    expected = [
        (("a", b"1"),),
        (("all", b"0"),),
        (("b", b"2"),),
        (),
        (("c", None), ("c", b"3")),
        (("d", b"4"),),
    ]
    read = fake.log("t", 0)
    assert [r.headers for r in read] == expected * 2
    times = [[1, shared, 2**62, 4, shared, 6] for shared in (12_500, 77)]
    assert [r.timestamp for r in read] == times[0] + times[1]


@virtual_time
async def test_columns_on_the_slow_way(producing: StartProducer) -> None:
    """A new batch for each record, and no metadata at first."""
    fake = one_topic(1, brokers=1)
    own = [[("n", b"%d" % n)] if n % 3 else None for n in range(50)]
    async with producing(fake, batch_size=0) as producer:
        times = [n if n % 2 else None for n in range(50)]
        delivery = await producer.send_many(
            "t", [b"v"] * 50, timestamps_ms=times, record_headers=own, timestamp_ms=1000
        )
        await delivery
    read = fake.log("t", 0)
    assert [r.headers for r in read] == [tuple(headers or ()) for headers in own]
    assert [r.timestamp for r in read] == [n if n % 2 else 1000 for n in range(50)]


items = st.none() | st.binary(max_size=8) | st.sampled_from([bytes(900), bytes(5000)])
batch_sizes = st.sampled_from([0, 100, 1000, 16384])
keyed = st.lists(st.tuples(items, st.none() | st.binary(max_size=2)), max_size=40)


@settings(max_examples=12)
@given(keyed, batch_sizes, st.sampled_from(["late", "kip794", "sticky", "round-robin"]))
def test_it_is_as_if_sent_one_by_one(records: Any, batch_size: int, partitioner: str) -> None:
    """Keyed records are in the same places, the others are all there."""

    async def log_of(bulk: bool) -> list[list[Any]]:
        fake = one_topic(4, brokers=2)
        options: Any = {"batch_size": batch_size, "partitioner": partitioner}
        async with Producer(fake.bootstrap, dialer=fake, **options) as producer:
            if bulk:
                values, keys = [v for v, _ in records], [k for _, k in records]
                delivery = await producer.send_many("t", values, keys=keys)
                metadata = await delivery
                assert metadata.records == len(records)
            else:
                for value, key in records:
                    await producer.send("t", value, key=key)
        logs = [fake.log("t", p) for p in range(4)]
        if bulk:
            counts = {p: sum(r.records for r in rs) for p, rs in metadata.partitions.items()}
            assert counts == {p: len(log) for p, log in enumerate(logs) if log}
        return [[(r.key, r.value) for r in log] for log in logs]

    many, single = run_virtual(log_of(True)), run_virtual(log_of(False))
    for a, b in zip(many, single, strict=True):
        assert [r for r in a if r[0] is not None] == [r for r in b if r[0] is not None]
    assert sorted(map(repr, chain(*many))) == sorted(map(repr, chain(*single)))


@pytest.mark.parametrize("acks", [0, 1, "all"])
@virtual_time
async def test_acks(acks: Any, producing: StartProducer) -> None:
    fake = one_topic(1, brokers=1)
    async with producing(fake, acks=acks, enable_idempotence=False) as producer:
        metadata = await (await producer.send_many("t", numbered(1000)))
        assert metadata.partitions == {0: (OffsetRange(-1 if acks == 0 else 0, 1000),)}
        await asyncio.sleep(1)
    assert len(fake.log("t", 0)) == 1000


@pytest.mark.parametrize("ignore_keys", [False, True])
@pytest.mark.parametrize("partitioner", ["late", "kip794", "round-robin"])
@virtual_time
async def test_partitioners(partitioner: str, ignore_keys: bool, producing: StartProducer) -> None:
    fake, sent = one_topic(6, brokers=3), numbered(2000)
    async with producing(
        fake, partitioner=partitioner, partitioner_ignore_keys=ignore_keys, batch_size=2000
    ) as producer:
        delivery = await producer.send_many("t", sent, keys=[b"one key"] * 2000)
        by_key = not ignore_keys and partitioner != "round-robin"
        partitions = len((await delivery).partitions)
        # With late binding all of it may be one batch, which grows until a broker takes it.
        assert partitions == 1 if by_key or partitioner == "late" else partitions > 1
        await (await producer.send_many("t", sent))
    assert sorted(logged(fake, 6)) == sorted(sent * 2)  # type: ignore[type-var]


@virtual_time
async def test_serializers_and_hooks(producing: StartProducer) -> None:
    fake, told = one_topic(1, brokers=1), []
    async with producing(
        fake, key_serializer=str.encode, value_serializer=str.encode, on_delivery=told.append
    ) as producer:
        delivery = await producer.send_many("t", ["a", None, "c"], keys=["k", "l", None])
        await delivery
        with pytest.raises(SerializationError, match="record 1: ") as caught:
            await producer.send_many("t", ["a", 7])
        assert caught.value.index == 1
        await asyncio.sleep(0)
    assert [(r.value, r.key) for r in fake.log("t", 0)] == [
        (b"a", b"k"),
        (None, b"l"),
        (b"c", None),
    ]
    assert [d.result().offset for d in told] == [0, 1, 2]


@virtual_time
async def test_the_hook_is_called_for_each_record_on_the_fast_way(producing: StartProducer) -> None:
    told: list[Any] = []
    async with producing(one_topic(1, brokers=1), on_delivery=told.append) as producer:
        await (await producer.send_many("t", numbered(1000)))
        await asyncio.sleep(0)
    assert [d.result().offset for d in told] == list(range(1000))


# --- bad input --------------------------------------------------------------------------------


@virtual_time
async def test_nothing_is_sent_if_anything_is_bad(producing: StartProducer) -> None:
    fake, good = one_topic(2, brokers=1), numbered(1000)
    async with producing(fake, max_request_size=2000) as producer:
        await (await producer.send_many("t", good[:1], partition=0))
        for error, arguments, message in (
            (InvalidRecordError, {"values": [*good, "text"]}, "record 1000: .* str"),
            (
                InvalidRecordError,
                {"values": good, "keys": [b"k"] * 999 + [7]},
                "record 999: .* int",
            ),
            (RecordTooLargeError, {"values": [*good, bytes(2000), *good]}, "record 1000: "),
            (InvalidRecordError, {"values": good, "keys": [b"k"]}, "1 keys for 1000 values"),
            (
                InvalidRecordError,
                {"values": good, "timestamps_ms": [None] * 999 + [-1]},
                "record 999: timestamp_ms",
            ),
            (InvalidRecordError, {"values": good, "timestamps_ms": [1]}, "1 timestamps_ms for"),
            (InvalidRecordError, {"values": good, "timestamps_ms": 5}, "timestamps_ms must be"),
            (
                InvalidRecordError,
                {"values": good, "record_headers": [()] * 998 + [{"a": 1}, ()]},
                "record 998: .* int",
            ),
            (
                RecordTooLargeError,
                {"values": good, "record_headers": [()] * 999 + [[("a", bytes(2000))]]},
                "record 999: ",
            ),
            (InvalidRecordError, {"values": good, "record_headers": []}, "0 record_headers for"),
            (InvalidRecordError, {"values": b"one"}, "a sequence with an item for each"),
            (InvalidRecordError, {"values": good, "headers": [("a", 1)]}, "header"),
            (InvalidRecordError, {"values": good, "timestamp_ms": -1}, "timestamp_ms"),
            (InvalidRecordError, {"values": good, "partition": -1}, "partition"),
            (PartitionOutOfRangeError, {"values": good, "partition": 2}, "2 partitions"),
        ):
            with pytest.raises(error, match=message) as caught:
                await producer.send_many("t", **arguments)
            if "record " in message:
                assert caught.value.index == int(message.split()[1].strip(":"))
        for topic in ("", None, 7):
            with pytest.raises(InvalidRecordError, match="topic"):
                await producer.send_many(topic, good)
    assert len(logged(fake, 2)) == 1


async def test_states() -> None:
    producer = Producer("127.0.0.1:1")
    with pytest.raises(RuntimeError, match="has not been started"):
        await producer.send_many("t", [b"v"])


# --- waiting ------------------------------------------------------------------------------------


@virtual_time
async def test_a_topic_not_known_yet(producing: StartProducer, values: Values) -> None:
    """It waits for metadata as send does, behind what was parked before."""
    fake, sent = one_topic(1, brokers=1), numbered(300)
    async with producing(fake) as producer:
        parked = producer.send_nowait("t", b"first")
        delivery = await producer.send_many("t", sent)
        assert (await delivery).partitions == {0: (OffsetRange(1, 300),)}
        await parked
    assert values(fake, "t") == [b"first", *sent]


@virtual_time
async def test_a_topic_that_never_comes(producing: StartProducer) -> None:
    fake = FakeCluster(1, auto_create_topics=False)
    async with producing(fake, max_block_ms=1000) as producer:
        with pytest.raises(
            MetadataTimeoutError, match="0 records of the call were handed over"
        ) as caught:
            await producer.send_many("unknown", [b"v"])
        assert (await caught.value.delivery).records == 0


@virtual_time
async def test_much_more_than_the_buffer_holds(producing: StartProducer, values: Values) -> None:
    """It waits for room, in slices; others get their turn; memory is bounded all the time."""
    fake, sent = one_topic(1, brokers=1), numbered(10_000)
    fake.round_trip_s = 0.01
    async with producing(fake, buffer_memory=BUFFER, batch_size=4096) as producer:
        buffer_pool = inspect(producer).accumulator.buffer_pool
        most, beside = 0, 0

        async def look() -> None:
            nonlocal most, beside
            while True:
                most = max(most, buffer_pool.total - buffer_pool.available)
                await producer.send("t", b"beside")
                beside += 1
                await asyncio.sleep(0.01)

        looking = asyncio.create_task(look())
        delivery = await producer.send_many("t", sent)
        looking.cancel()
        await asyncio.wait([looking])
        await delivery
        assert 0.5 * BUFFER < most <= BUFFER
        assert beside > 10
    assert [v for v in values(fake, "t") if v != b"beside"] == sent


@virtual_time
async def test_two_at_a_full_buffer_share_it_batch_by_batch(
    producing: StartProducer, values: Values
) -> None:
    """Not record by record, each of which would be waited for."""
    fake = one_topic(1, brokers=1)
    fake.round_trip_s = 0.01
    async with producing(fake, buffer_memory=BUFFER, batch_size=4096) as producer:
        both = [producer.send_many("t", [b"%d" % n + bytes(99)] * 3000) for n in range(3)]
        await asyncio.gather(*[await d for d in [asyncio.ensure_future(b) for b in both]])
        metrics = producer.metrics().producer
        assert metrics["records-per-request-avg"] > 10
    assert len(values(fake, "t")) == 9000


@virtual_time
async def test_no_room_within_max_block(producing: StartProducer, values: Values) -> None:
    fake, sent = one_topic(1, brokers=1), numbered(10_000)
    async with producing(fake, buffer_memory=BUFFER, max_block_ms=3000) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        started = now()
        with pytest.raises(
            BufferFullError, match=r"\d+ records of the call were handed over"
        ) as caught:
            await producer.send_many("t", sent)
        assert now() - started == pytest.approx(3.0, abs=0.1)
        partial = caught.value.delivery
        assert 100 < partial.records < 10_000
        assert str(caught.value).endswith(
            f"; {partial.records} records of the call were handed over, the others were not sent"
        )
        assert producer.metrics().producer["buffer-exhausted-total"] == 1
        fake.resume_broker(0)
        assert (await partial).partitions == {0: (OffsetRange(1, partial.records),)}
    assert values(fake, "t") == [b"first", *sent[: partial.records]]


@virtual_time
async def test_cancelled_while_it_waits(producing: StartProducer, values: Values) -> None:
    """What was handed over is delivered, the rest is not sent, nobody else is harmed."""
    fake, sent = one_topic(1, brokers=1), numbered(10_000)
    async with producing(fake, buffer_memory=BUFFER) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        bulk = asyncio.create_task(producer.send_many("t", sent))
        await asyncio.sleep(1)
        other = asyncio.create_task(producer.send("t", b"other"))
        await asyncio.sleep(1)
        bulk.cancel()
        fake.resume_broker(0)
        assert (await (await other)).offset > 100
        with pytest.raises(asyncio.CancelledError):
            await bulk
        await producer.flush()
    read = values(fake, "t")
    assert read[-1] == b"other"
    assert read[1:-1] == sent[: len(read) - 2]


@pytest.mark.parametrize("given", [list, iter])
async def test_the_event_loop_has_its_turn(producing: StartProducer, given: Any) -> None:
    """A task that is always ready runs about every millisecond: of the process's own time, or
    whatever else the machine does would count."""
    fake, turns = one_topic(1, brokers=1), 0
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"first")

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(take_turns())
        values, keys = numbered(60_000), [b"%d" % (n % 50) for n in range(60_000)]
        turns, started = 0, time.process_time()
        delivery = await producer.send_many("t", given(values), keys=keys)
        took = time.process_time() - started
        assert turns > took / 0.02
        assert turns >= 3
        beside.cancel()
        await delivery


# --- leaving nothing behind ---------------------------------------------------------------------


async def test_nothing_is_leaked(producing: StartProducer) -> None:
    fake = one_topic(6, brokers=1)
    async with producing(fake, linger_ms=0) as producer:
        values, keys = numbered(1000), [b"%d" % (n % 50) for n in range(1000)]

        async def rounds(count: int) -> None:
            for n in range(count):
                delivery = await producer.send_many("t", values, keys=keys if n % 2 else None)
                await delivery
            fake.requests.clear()
            for partition in inspect(fake).topics["t"].partitions:
                partition.log.batches.clear()

        await rounds(4)
        gc.collect()
        objects = len(gc.get_objects())
        tracemalloc.start(1)
        try:
            await rounds(2)
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            await rounds(10)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert grown < 100_000
        assert len(gc.get_objects()) - objects < 1000
