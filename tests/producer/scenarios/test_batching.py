"""When batches leave, how full, how many at a time.

Ids such as ``L3`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import RecordTooLargeError
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import ErrorCode, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import StartProducer, Values


def batches_per_request(fake: FakeCluster) -> list[int]:
    return [len(request.batches) for request in fake.requests_of(ApiKey.PRODUCE)]


# --- L3, L4: linger ---------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["flush", "stop"])
@virtual_time
async def test_flush_and_stop_do_not_linger(end: str, producing: StartProducer) -> None:
    """L3: with two seconds of linger, in no time."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, linger_ms=2000) as producer:
        delivery = await producer.send("t", b"v")
        await getattr(producer, end)()
        assert now() == 0.0
        assert delivery.result().offset == 0


@virtual_time
async def test_records_of_a_flush_do_not_linger_either(producing: StartProducer) -> None:
    """L3: what is sent while a flush is under way leaves with it; after it, lingering is back."""
    fake = one_topic(1, brokers=1)
    fake.round_trip_s = 0.1
    async with producing(fake, linger_ms=2000) as producer:
        await producer.send("t", b"1")
        flush = asyncio.create_task(producer.flush())
        await asyncio.sleep(0.01)
        second = await producer.send("t", b"2")
        started = now()
        await flush
        await second
        assert now() - started < 0.5
        third = await producer.send("t", b"3")
        await asyncio.sleep(2.05)
        assert not third.done()
        await asyncio.sleep(0.1)
        assert third.done()


@virtual_time
async def test_a_full_batch_leaves_at_once(producing: StartProducer) -> None:
    """L4: linger never delays what is full, nor what lies before it."""
    fake = one_topic(1, brokers=1)
    options = {"linger_ms": 10_000, "batch_size": 1000, "partitioner": "kip794"}
    async with producing(fake, **options) as producer:
        deliveries = [await producer.send("t", bytes(100)) for _ in range(30)]
        await deliveries[20]
        assert now() == 0.0
        await deliveries[-1]
        assert now() == pytest.approx(10.0)


@virtual_time
@pytest.mark.parametrize("key", [None, b"k"])
async def test_what_waits_for_a_broker_grows_into_one_batch(
    key: bytes | None, producing: StartProducer
) -> None:
    """A full batch leaves as soon as it can; until then it goes on taking records."""
    fake = one_topic(2, brokers=1)
    fake.round_trip_s = 1.0
    async with producing(fake, linger_ms=0, batch_size=1000) as producer:
        window = producer.config.max_in_flight_requests_per_connection
        for _ in range(200):
            await producer.send("t", bytes(100), key)
            await asyncio.sleep(0.001)
        await producer.flush()
        assert sum(b.record_count for p in (0, 1) for b in fake.batches("t", p)) == 200
        assert max(b.record_count for p in (0, 1) for b in fake.batches("t", p)) > 100
        assert len(fake.requests_of(ApiKey.PRODUCE)) <= 3 * window


@virtual_time
async def test_an_awaited_record_without_company_does_not_linger(producing: StartProducer) -> None:
    fake = one_topic(3, brokers=1)
    fake.round_trip_s = 0.1
    async with producing(fake, linger_ms=2000) as producer:
        await producer.send_and_wait("t", b"to get connected")
        started = now()
        await producer.send_and_wait("t", b"alone")
        assert now() - started == pytest.approx(0.1)
        started = now()
        first = await producer.send("t", b"not awaited yet")
        await asyncio.sleep(0.5)
        assert not first.done(), "who does not wait does not hurry"
        second = asyncio.create_task(producer.send_and_wait("t", b"with company"))
        await asyncio.sleep(0.2)
        assert not first.done()
        await asyncio.gather(first, second)
        assert now() - started == pytest.approx(2.1, abs=0.01)


@virtual_time
async def test_all_that_are_woken_together_travel_together(producing: StartProducer) -> None:
    fake = one_topic(3, brokers=1)
    fake.round_trip_s = 0.1
    async with producing(fake, linger_ms=2000) as producer:

        async def worker() -> None:
            for _ in range(10):
                await producer.send_and_wait("t", b"v")

        await producer.send_and_wait("t", b"to get connected")
        started = now()
        await asyncio.gather(*(worker() for _ in range(100)))
        assert now() - started == pytest.approx(1.0, abs=0.01)
        assert len(fake.requests_of(ApiKey.PRODUCE)) == 11


@virtual_time
async def test_linger_is_the_age_of_the_oldest_record(producing: StartProducer) -> None:
    """L4: a record each 10 ms for 5 s: none waits longer than 100 ms for its departure."""
    fake = one_topic(1, brokers=1)
    appended = []
    async with producing(fake, linger_ms=100) as producer:
        for n in range(500):
            await producer.send("t", b"%d" % n)
            appended.append(now())
            assert len(inspect(producer).accumulator.ready_queues._timers) <= 2
            await asyncio.sleep(0.01)
    requests = fake.requests_of(ApiKey.PRODUCE)
    counts = [header.record_count for header in fake.batches("t", 0)]
    assert len(requests) == len(counts) == pytest.approx(48, abs=2)
    left = [request.at for request, n in zip(requests, counts, strict=True) for _ in range(n)]
    assert max(at - since for at, since in zip(left, appended, strict=True)) <= 0.1001


@virtual_time
async def test_a_full_batch_does_not_take_others_along(producing: StartProducer) -> None:
    """P5: another partition's record waits for its own linger."""
    fake = one_topic(2, brokers=1)
    async with producing(fake, linger_ms=500, batch_size=1000) as producer:
        fresh = await producer.send("t", b"fresh", partition=1)
        await asyncio.sleep(0.1)
        full = [await producer.send("t", bytes(100), partition=0) for _ in range(20)]
        await full[0]
        assert now() == pytest.approx(0.1)
        await asyncio.sleep(0.39)
        assert not fresh.done()
        await asyncio.sleep(0.02)
        assert fresh.done()


@pytest.mark.parametrize("batch_size", [0, 1])
@virtual_time
async def test_batch_size_nought_ends_all_waiting(
    batch_size: int, producing: StartProducer
) -> None:
    """K7: batch.size=0 means no batching, and terminates; so does 1."""
    fake = one_topic(3, brokers=1)
    async with producing(fake, linger_ms=1000, batch_size=batch_size) as producer:
        await asyncio.gather(*[producer.send_and_wait("t", b"%d" % n) for n in range(50)])
        assert now() == pytest.approx(0.0) if batch_size == 0 else now() <= 1.0
    assert sum(len(fake.log("t", p)) for p in range(3)) == 50


# --- B2, B3, B4: requests ---------------------------------------------------------------------


@virtual_time
async def test_concurrent_sends_make_full_batches(producing: StartProducer) -> None:
    """B2: 5000 at once: each is appended once, and the batches are full."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, batch_size=16384, linger_ms=50) as producer:
        await producer.partitions_for("t")
        attempts = counting_appends(producer)
        deliveries = await asyncio.gather(*[producer.send("t", bytes(100)) for _ in range(5000)])
        await producer.flush()
        assert all(delivery.exception() is None for delivery in deliveries)
        assert attempts[0] <= 5500
    sizes = [header.size for header in fake.batches("t", 0)]
    assert sum(sizes) / len(sizes) >= 0.9 * 16384


@virtual_time
async def test_concurrent_sends_beyond_the_buffer_make_full_batches(
    producing: StartProducer,
) -> None:
    """B2: the same with room for a tenth of them: waiters are admitted in order, in crowds."""
    fake = one_topic(1, brokers=1)
    fake.round_trip_s = 0.01
    async with producing(
        fake, batch_size=16384, linger_ms=10_000, buffer_memory=8 * 16384
    ) as producer:
        await producer.partitions_for("t")
        attempts = counting_appends(producer)
        values = [b"%0100d" % n for n in range(5000)]
        await asyncio.gather(*[producer.send("t", value) for value in values])
        await producer.flush()
        assert attempts[0] <= 2 * 5500  # once at first, once when there is room
        assert now() < 2.0  # reaching the bound ends lingering
    sizes = [header.size for header in fake.batches("t", 0)]
    assert [record.value for record in fake.log("t", 0)] == values
    assert sum(sizes) / len(sizes) >= 0.75 * 16384


def counting_appends(producer: Any) -> list[int]:
    admission = inspect(producer).admission
    attempts, append = [0], admission._append

    def counted(*args: Any, **kwargs: Any) -> Any:
        attempts[0] += 1
        return append(*args, **kwargs)

    admission._append = counted
    return attempts


@virtual_time
async def test_a_slow_round_trip_does_not_bound_a_partition(producing: StartProducer) -> None:
    """B3: 5 ms away, one partition: five batches in flight, four times one at a time."""
    fake = one_topic(1, brokers=1)
    fake.round_trip_s = 0.005
    async with producing(fake, linger_ms=1) as producer:
        await producer.send_and_wait("t", b"first")
        started = now()
        deliveries = [await producer.send("t", bytes(1000)) for _ in range(3200)]
        await asyncio.gather(*deliveries)
        assert 3_200_000 / (now() - started) >= 4 * 16384 / 0.005
        assert producer.metrics().producer["record-retry-total"] == 0


@virtual_time
async def test_order_is_kept_when_the_second_of_five_is_refused(
    producing: StartProducer, values: Values
) -> None:
    """B3: the later ones are on the wire already, and have to come again after it."""
    fake = one_topic(1, brokers=1)
    fake.round_trip_s = 0.05
    async with producing(fake, batch_size=0, partitioner="kip794") as producer:
        await producer.send_and_wait("t", b"0")
        failures = iter([None, ErrorCode.NOT_ENOUGH_REPLICAS])
        fake.control(ApiKey.PRODUCE, lambda _: next(failures, None), keep=True)
        deliveries = [await producer.send("t", b"%0100d" % n) for n in range(1, 6)]
        await asyncio.sleep(0.04)
        assert producer.metrics().producer["requests-in-flight"] == 5
        assert [m.offset for m in await asyncio.gather(*deliveries)] == [1, 2, 3, 4, 5]
    assert values(fake, "t")[1:] == [b"%0100d" % n for n in range(1, 6)]


@virtual_time
async def test_requests_keep_to_max_request_size(producing: StartProducer) -> None:
    """B4: 100 partitions with 100 KB each: several requests, nobody starves."""
    fake = one_topic(100, brokers=1)
    async with producing(fake, linger_ms=100, batch_size=200_000) as producer:
        await producer.partitions_for("t")
        deliveries = [await producer.send("t", bytes(100_000), partition=p) for p in range(100)]
        await asyncio.gather(*deliveries)
        assert now() == pytest.approx(0.1)
    sizes = [sum(len(b) for *_, b in r.batches) for r in fake.requests_of(ApiKey.PRODUCE)]
    assert max(sizes) <= 1_048_576
    assert batches_per_request(fake) == [10] * 10


@virtual_time
async def test_a_large_record_travels_alone(producing: StartProducer) -> None:
    """B4: larger than a batch, smaller than max.request.size; beyond it, an error at once."""
    fake = one_topic(1, brokers=1)
    async with producing(fake, linger_ms=0, partitioner="kip794") as producer:
        await asyncio.gather(
            producer.send_and_wait("t", bytes(100)),
            producer.send_and_wait("t", bytes(900_000)),
            producer.send_and_wait("t", bytes(100)),
        )
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size=1048576"):
            await producer.send("t", bytes(1_048_576))
    assert [header.record_count for header in fake.batches("t", 0)] == [1, 1, 1]


# --- B5: splitting ----------------------------------------------------------------------------


@virtual_time
async def test_batches_too_large_for_the_topic_are_split(producing: StartProducer) -> None:
    """B5: a 1 MB batch where 1 KB is allowed: halved ten times, in order, each record once; a
    record that is too large alone fails alone."""
    fake = one_topic(1, max_message_bytes=1024, brokers=1)
    async with producing(
        fake, batch_size=1_000_000, linger_ms=1000, max_request_size=2_000_000
    ) as producer:
        values = [b"%0100d" % n for n in range(1500)]
        values[700] = bytes(2000)
        deliveries = [await producer.send("t", value) for value in values]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        assert isinstance(results.pop(700), RecordTooLargeError)
        assert [metadata.offset for metadata in results] == list(range(1499))
        splits = producer.metrics().producer["batch-split-total"]
        assert splits < 3 * 1500 / 8
        assert producer.metrics().producer["record-error-total"] == 1
    del values[700]
    assert [record.value for record in fake.log("t", 0)] == values
    assert now() < 20


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@virtual_time
async def test_splitting_with_every_codec(codec: str, producing: StartProducer) -> None:
    """B5: with deliveries, waiters and hooks led on to the parts."""
    fake = one_topic(1, max_message_bytes=600, brokers=1)
    told: list[Any] = []
    async with producing(
        fake, batch_size=100_000, linger_ms=100, compression_type=codec, on_delivery=told.append
    ) as producer:
        values = [bytes((n * k * k + n) % 251 for k in range(80)) for n in range(100)]
        waiting = [asyncio.create_task(producer.send_and_wait("t", v)) for v in values]
        metadata = await asyncio.gather(*waiting)
        assert [m.offset for m in metadata] == list(range(100))
    assert [record.value for record in fake.log("t", 0)] == values
    assert [delivery.result().offset for delivery in told] == list(range(100))
