"""What becomes of batches: memory, flushes and splits, whatever state they end in."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BrokerConnectionError, ProducerClosedError
from kafkaclient.wire.compression import CompressionType

if TYPE_CHECKING:
    from tests.producer.support import Bench

LOST = BrokerConnectionError("lost")
CLOSED = ProducerClosedError("closed")


def queued(b: Any) -> Any:
    return b.put_batches(0, 1, records=4)[0]


def on_wire(b: Any) -> Any:
    batch = queued(b)
    assert b.drain() == [batch]
    return batch


def queued_for_retry(b: Any) -> Any:
    batch = on_wire(b)
    b.incomplete.retry(batch, LOST, 1.0, 0.0)
    return batch


def expired_on_wire(b: Any) -> Any:
    batch = on_wire(b)
    b.incomplete.fail_without_answer(batch, CLOSED, 0.0)
    return batch


ENDS = {
    "complete": lambda b, batch: b.incomplete.complete(batch, 0, -1, 0.0),
    "fail": lambda b, batch: b.incomplete.fail(batch, LOST, 0.0),
    "retry": lambda b, batch: b.incomplete.retry(batch, LOST, 1.0, 0.0),
    "resequence": lambda b, batch: b.incomplete.resequence(batch, LOST, 1.0, 0.0),
    "split": lambda b, batch: b.incomplete.split(batch, 0.0),
    "fail_without_answer": lambda b, batch: b.incomplete.fail_without_answer(batch, CLOSED, 0.0),
}


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
@pytest.mark.parametrize(
    ("state", "end"),
    [
        *((queued, end) for end in ("fail_without_answer",)),
        *((queued_for_retry, end) for end in ("fail_without_answer",)),
        *((on_wire, end) for end in ENDS),
        *((expired_on_wire, end) for end in ("complete", "fail", "retry", "resequence")),
    ],
)
def test_memory_comes_back_in_the_end(
    bench: type[Bench], state: Any, end: str, codec: CompressionType, idempotent: bool
) -> None:
    b = bench(idempotent=idempotent, codec=codec)
    ENDS[end](b, state(b))
    queue = b.queue(0)
    assert b.used == sum(batch.charged for batch in {*queue.batches, *queue.unacked})
    while (batches := b.drain(now=5.0)) or queue.in_flight:
        for batch in batches or list(queue.unacked):
            b.incomplete.complete(batch, 0, -1, 0.0)
    assert b.used == 0
    assert len(b.incomplete) == 0
    assert (queue.in_flight, list(queue.unacked), list(queue.batches)) == (0, [], [])
    fresh = on_wire(b)
    b.incomplete.complete(fresh, 0, -1, 0.0)
    assert b.used == 0


def test_halves_stand_in_the_place_of_the_whole(bench: type[Bench]) -> None:
    b = bench(batch_size=65536)
    deliveries = [b.put(0, b"%d" % n) for n in range(5)]
    (whole,) = b.drain()
    later = b.put_batches(0, 1)[0]
    b.incomplete.split(whole, 0.0)
    first, second, last = b.queue(0).batches
    assert (first.count, second.count, last) == (3, 2, later)
    assert [batch.serial for batch in b.incomplete] == [1, 1, 2]
    assert b.drain() == [first]
    b.incomplete.complete(first, 100, -1, 0.0)
    assert [d.done() for d in deliveries] == [True, True, True, False, False]
    assert b.drain() == [second]
    b.incomplete.complete(second, 200, -1, 0.0)
    assert [d.result().offset for d in deliveries] == [100, 101, 102, 200, 201]
    assert b.drain() == [later]


def test_split_and_reenqueue(bench: type[Bench]) -> None:
    """RecordAccumulatorTest.testSplitAndReenqueue, with the retry before the split."""
    b = bench(batch_size=65536, codec=CompressionType.GZIP)
    deliveries = [b.put(0, bytes(1024)) for _ in range(2)]
    (batch,) = b.drain()
    b.incomplete.retry(batch, LOST, 0.121, 0.0)
    assert b.ready(0.120) == set()
    assert b.drain(now=0.121) == [batch]
    b.incomplete.split(batch, 0.121)
    for offset in (0, 1):
        (part,) = b.drain(now=0.121)
        assert part.count == 1
        b.incomplete.complete(part, offset, -1, 0.2)
    assert [d.result().offset for d in deliveries] == [0, 1]
    assert b.used == 0


def test_split_batch_off_accumulator(bench: type[Bench]) -> None:
    """testSplitBatchOffAccumulator: an estimate that is far too low; memory is exact after it."""
    b = bench(batch_size=1024, buffer_memory=3072, codec=CompressionType.GZIP)
    b.topic.ratio.value = 0.1
    rng, splits = Random(1), 0
    deliveries = [b.put(0, rng.randbytes(100)) for _ in range(20)]
    assert None not in deliveries
    while batches := b.drain():
        for batch in batches:
            if batch.size > 1024:
                splits += 1
                b.incomplete.split(batch, 0.0)
            else:
                b.incomplete.complete(batch, 0, -1, 0.0)
    assert splits > 0
    assert all(d.done() for d in deliveries)
    assert b.buffer_pool.available == 3072


@pytest.mark.parametrize("good", range(1, 100, 14))
def test_split_frequency(bench: type[Bench], good: int) -> None:
    """testSplitFrequency: well and badly compressible values mixed; few batches come out large."""
    b = bench(batch_size=1024, codec=CompressionType.GZIP, linger=10.0)
    rng, batches, splits = Random(good), 0, 0

    def deliver() -> None:
        nonlocal batches, splits
        while drained := b.drain():
            for batch in drained:
                batches += 1
                if batch.size > 1024 and batch.count > 1:
                    splits += 1
                    b.incomplete.split(batch, 0.0)
                else:
                    b.incomplete.complete(batch, 0, -1, 0.0)

    for _ in range(1000):
        value = bytes(100) if rng.randrange(100) < good else rng.randbytes(100)
        b.put(0, value)
        deliver()
    b.accumulator.close(0.0)
    deliver()
    assert b.used == 0
    assert splits < batches * 0.1


def test_a_split_starts_the_compression_estimate_anew(bench: type[Bench]) -> None:
    b = bench(batch_size=4096, codec=CompressionType.LZ4)
    b.topic.ratio.value = 0.1
    for _ in range(20):
        b.put(0, Random(1).randbytes(100))
    (batch,) = b.drain()
    assert b.topic.ratio.value < 0.3
    b.incomplete.split(batch, 0.0)
    assert b.topic.ratio.value > 0.9


async def test_flush(bench: type[Bench]) -> None:
    """RecordAccumulatorTest.testFlush: 100 records over three partitions, endless linger."""
    b = bench(linger=1e9, batch_size=4096)
    for n in range(100):
        b.put(n % 3)
    assert b.ready() == set()
    flush = asyncio.create_task(b.incomplete.flush(0.0))
    await asyncio.sleep(0)
    assert b.incomplete.flushes
    assert b.ready() == {0, 1}
    for batch in b.drain(0) + b.drain(1):
        assert not flush.done()
        b.incomplete.complete(batch, 0, -1, 0.0)
    await flush
    assert not b.incomplete.flushes
    b.put(0)
    assert b.ready() == set(), "lingering is back"


async def test_flush_waits_for_what_was_there_when_it_was_called(bench: type[Bench]) -> None:
    b = bench(linger=0.0)
    first = on_wire(b)
    flush = asyncio.create_task(b.incomplete.flush(0.0))
    await asyncio.sleep(0)
    second = on_wire(b)
    later = asyncio.create_task(b.incomplete.flush(0.0))
    await asyncio.sleep(0)
    b.incomplete.complete(second, 0, -1, 0.0)
    await asyncio.sleep(0)
    assert not flush.done()
    assert not later.done()
    b.incomplete.complete(first, 0, -1, 0.0)
    await asyncio.gather(flush, later)


async def test_flush_waits_for_the_halves_of_a_split(bench: type[Bench]) -> None:
    b = bench()
    batch = on_wire(b)
    flush = asyncio.create_task(b.incomplete.flush(0.0))
    await asyncio.sleep(0)
    b.incomplete.split(batch, 0.0)
    later = b.put_batches(0, 1)[0]
    for _ in range(2):
        await asyncio.sleep(0)
        assert not flush.done()
        b.incomplete.complete(b.drain()[0], 0, -1, 0.0)
    await flush
    assert later in b.incomplete


async def test_flush_ends_with_failures_and_abandoned_batches(bench: type[Bench]) -> None:
    b = bench()
    failing, wire = queued(b), None
    (wire,) = b.drain()
    assert wire is failing
    waiting = b.put_batches(1, 1)[0]
    flush = asyncio.create_task(b.incomplete.flush(0.0))
    await asyncio.sleep(0)
    b.incomplete.fail_without_answer(wire, CLOSED, 0.0)
    assert not flush.done()
    b.incomplete.fail_without_answer(waiting, CLOSED, 0.0)
    await flush


async def test_a_cancelled_flush_leaves_nothing_behind(bench: type[Bench]) -> None:
    b = bench(linger=10.0)
    b.put(0)
    flush = asyncio.create_task(b.incomplete.flush(0.0))
    await asyncio.sleep(0)
    flush.cancel()
    await asyncio.gather(flush, return_exceptions=True)
    assert not b.incomplete.flushes
    assert len(b.incomplete) == 1


async def test_a_batch_done_looks_at_no_more_flushes_than_end(bench: type[Bench]) -> None:
    b = bench()
    batches = b.put_batches(0, 50)
    flushes = [asyncio.create_task(b.incomplete.flush(0.0)) for _ in range(50)]
    await asyncio.sleep(0)
    looks = 0

    class Counted(dict[Any, Any]):
        def items(self) -> Any:
            nonlocal looks
            for item in super().items():
                looks += 1
                yield item

    b.incomplete.flushes = Counted(b.incomplete.flushes)
    for batch in batches:
        assert not any(flush.done() for flush in flushes)
        b.incomplete.fail_without_answer(batch, CLOSED, 0.0)
    await asyncio.gather(*flushes)
    assert looks <= len(batches) + len(flushes)


async def test_flush_of_nothing(bench: type[Bench]) -> None:
    await bench().incomplete.flush(0.0)


def test_abort_incomplete_batches(bench: type[Bench]) -> None:
    """testAbortIncompleteBatches: 100 records, some drained; all fail, all memory comes back."""
    b = bench(batch_size=128 + 61)
    deliveries = [b.put(n % 3) for n in range(100)]
    drained = b.drain(0)
    assert drained
    for batch in list(b.incomplete):
        b.incomplete.fail_without_answer(batch, CLOSED, 0.0)
    assert {str(d.exception()) for d in deliveries} == {str(CLOSED)}
    assert len(b.incomplete) == 0
    assert b.used == sum(batch.charged for batch in drained), "the wire's comes back later"
    for batch in drained:
        b.incomplete.retry(batch, LOST, 0.0, 0.0)
    assert b.used == 0
    assert b.drain(0) == b.drain(1) == []
