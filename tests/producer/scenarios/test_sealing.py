"""Whole producers whose large batches are compressed aside, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import DeliveryTimeoutError, KafkaError, ProducerClosedError
from kafkaclient.producer.batches.partition_queue import QueueState
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.inspect import inspect
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from kafkaclient.testing.fake import FakeCluster
    from tests.producer.support import StartProducer, Values

LARGE = b"large " * 10_000


def cluster(partitions: int = 1) -> FakeCluster:
    return one_topic(partitions, brokers=1, round_trip_s=0.002)


class Slow:
    """Everything done aside takes so many seconds."""

    at_a_time = 2

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.timers: list[asyncio.TimerHandle] = []
        self.told = 0

    def run(self, work: Any, done: Any) -> None:
        def end() -> None:
            self.told += 1
            done(work())

        self.timers.append(asyncio.get_running_loop().call_later(self.seconds, end))

    def close(self) -> None:
        for timer in self.timers:
            timer.cancel()


def slow(producer: Any, seconds: float) -> Slow:
    background = inspect(producer).accumulator.compressor._background = Slow(seconds)
    return background


def place(producer: Any, partition: int = 0) -> QueueState:
    return inspect(producer).accumulator.topics["t"].queue(partition).state


@pytest.mark.parametrize("partitioner", ["kip794", "late"])
@pytest.mark.parametrize(
    "codec",
    ["lz4", *(pytest.param(one, marks=pytest.mark.full) for one in ("gzip", "snappy", "zstd"))],
)
@virtual_time
async def test_every_codec_beside_the_event_loop(
    codec: str, partitioner: str, producing: StartProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keyed, chosen and free records, small and large batches: all there, and in order."""
    loop, jobs = asyncio.get_running_loop(), []
    run_in_executor = loop.run_in_executor

    def counted(*args: Any) -> Any:
        jobs.append(args)
        return run_in_executor(*args)

    monkeypatch.setattr(loop, "run_in_executor", counted)
    fake, expected = cluster(3), defaultdict(list)
    async with producing(
        fake, compression_type=codec, partitioner=partitioner, batch_size=200_000
    ) as producer:
        deliveries = []
        for n in range(6000):
            value = b"%d %d." % (n % 3, n) + b"flight" * 40
            if n % 3 == 2:
                deliveries.append(producer.send_nowait("t", value))
            else:
                deliveries.append(producer.send_nowait("t", value, partition=n % 3))
            if n % 2000 == 1999:
                await asyncio.sleep(0.02)
        places = await asyncio.gather(*deliveries)
        rate = producer.metrics().producer["compression-rate-avg"]
    for n, metadata in enumerate(places):
        expected[metadata.partition, n % 3].append(n)
    read = defaultdict(list)
    for partition in range(3):
        for record in fake.log("t", partition):
            kind, number = record.value.split(b".")[0].split()
            read[partition, int(kind)].append(int(number))
    assert read == expected
    assert rate < 0.5
    assert jobs


@virtual_time
async def test_a_large_batch_holds_up_its_partition_only(
    producing: StartProducer, values: Values
) -> None:
    fake = cluster(2)
    async with producing(fake, compression_type="gzip", linger_ms=0) as producer:
        await producer.partitions_for("t")
        slow(producer, 0.5)
        large = producer.send_nowait("t", LARGE, partition=0)
        behind = producer.send_nowait("t", b"behind", partition=0)
        await producer.send_and_wait("t", b"elsewhere", partition=1)
        assert now() < 0.1
        assert not large.done()
        assert place(producer) is QueueState.SEALING
        await behind
        assert now() == pytest.approx(0.5, abs=0.05)
    assert values(fake, "t", 0) == [LARGE, b"behind"]


@virtual_time
async def test_flush_and_stop_wait_for_what_is_being_compressed(
    producing: StartProducer, values: Values
) -> None:
    fake = cluster()
    async with producing(fake, compression_type="gzip") as producer:
        await producer.partitions_for("t")
        slow(producer, 0.5)
        flushed = producer.send_nowait("t", LARGE)
        await producer.flush()
        assert flushed.done()
        stopped = producer.send_nowait("t", LARGE)
    assert stopped.result().offset == 1
    assert values(fake, "t") == [LARGE] * 2


@virtual_time
async def test_the_delivery_timeout_ends_while_it_is_being_compressed(
    producing: StartProducer, values: Values
) -> None:
    """The batch fails in time, and once; what comes of the work is dropped."""
    fake = cluster()
    async with producing(
        fake,
        compression_type="gzip",
        linger_ms=0,
        request_timeout_ms=500,
        delivery_timeout_ms=1000,
    ) as producer:
        await producer.partitions_for("t")
        background = slow(producer, 5.0)
        large = producer.send_nowait("t", LARGE, partition=0)
        await asyncio.sleep(0.5)
        late = producer.send_nowait("t", b"behind", partition=0)
        with pytest.raises(DeliveryTimeoutError, match="waited to be compressed") as caught:
            await large
        assert not caught.value.maybe_written
        assert now() == pytest.approx(1.0, abs=0.1)
        await late
        buffer_pool = inspect(producer).accumulator.buffer_pool
        assert buffer_pool.available == buffer_pool.total
        await asyncio.sleep(5)
        assert background.told == 1
        assert buffer_pool.available == buffer_pool.total
        await producer.send_and_wait("t", LARGE[:600], partition=0)
    assert values(fake, "t") == [b"behind", LARGE[:600]]


@virtual_time
async def test_stopped_while_it_is_being_compressed(
    producing: StartProducer, values: Values
) -> None:
    fake = cluster()
    async with producing(fake, compression_type="gzip") as producer:
        await producer.partitions_for("t")
        background = slow(producer, 5.0)
        deliveries = [producer.send_nowait("t", LARGE) for _ in range(6)]
        await producer.stop(timeout=0.1)
        for delivery in deliveries:
            assert isinstance(delivery.exception(), ProducerClosedError)
    await asyncio.sleep(10)
    assert background.told == 0
    assert values(fake, "t") == []


@virtual_time
async def test_the_senders_end_is_the_end_of_what_is_being_compressed(
    producing: StartProducer,
) -> None:
    """As at the end of ``asyncio.run``, with real threads at work."""
    fake = cluster()
    async with producing(fake, compression_type="gzip", linger_ms=0) as producer:
        await producer.partitions_for("t")
        deliveries = [producer.send_nowait("t", LARGE * 10) for _ in range(4)]
        await asyncio.sleep(0)
        inspect(producer)._task.cancel()
        for delivery in deliveries:
            with pytest.raises(KafkaError):
                await delivery
        await asyncio.get_running_loop().shutdown_default_executor()


@virtual_time
async def test_without_the_default_executor_it_is_compressed_all_the_same(
    producing: StartProducer, values: Values
) -> None:
    fake = cluster()
    async with producing(fake, compression_type="gzip", linger_ms=0) as producer:
        await producer.partitions_for("t")
        await asyncio.get_running_loop().shutdown_default_executor()
        await producer.send_and_wait("t", LARGE)
    assert values(fake, "t") == [LARGE]


async def test_an_application_that_fills_the_default_executor_holds_up_nothing(
    producing: StartProducer, values: Values
) -> None:
    """Batches are compressed by threads of the producer's own, which end with it."""

    before = set(threading.enumerate())  # those of other tests may be about to end

    def ours() -> list[str]:
        names = [thread.name for thread in set(threading.enumerate()) - before]
        return [name for name in names if "kafkaclient" in name]

    fake, let_go = cluster(), threading.Event()
    async with producing(fake, compression_type="gzip", linger_ms=0) as producer:
        await producer.send_and_wait("t", b"small")
        assert not ours(), "nothing was to be compressed aside yet"
        jobs = [asyncio.create_task(asyncio.to_thread(let_go.wait, 60)) for _ in range(50)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(30):
                await producer.send_and_wait("t", LARGE)
            assert ours()
        finally:
            let_go.set()
            await asyncio.gather(*jobs)
    assert values(fake, "t") == [b"small", LARGE]
    async with asyncio.timeout(30):
        while ours():
            await asyncio.sleep(0.001)


@virtual_time
async def test_while_the_way_is_blocked_two_are_compressed_and_the_others_grow(
    producing: StartProducer, values: Values
) -> None:
    fake = cluster(2)
    async with producing(
        fake, compression_type="zstd", partitioner="late", buffer_memory=2**27
    ) as producer:
        await producer.send_and_wait("t", b"first")
        fake.stall_broker(0)
        deliveries = [producer.send_nowait("t", b"%07d" % n * 100) for n in range(20)]
        await asyncio.sleep(0.05)
        unbound = inspect(producer).accumulator.topics["t"].unbound
        for n in range(20, 4000):
            deliveries.append(producer.send_nowait("t", b"%07d" % n * 100))
            if n % 20 == 0:
                await asyncio.sleep(0.001)
        first, second, *growing = unbound.batches
        assert first.sealed
        assert second.sealed
        assert max(first.raw_size, second.raw_size) < 300_000
        assert not any(batch.sealed for batch in growing)
        assert growing[0].raw_size > 900_000
        assert unbound.state is QueueState.READY
        fake.resume_broker(0)
        await asyncio.gather(*deliveries)
    assert sorted(values(fake, "t", 0) + values(fake, "t", 1))[:-1] == sorted(
        b"%07d" % n * 100 for n in range(4000)
    )
