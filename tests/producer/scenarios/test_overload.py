"""What an overloaded producer takes: memory by its bound (B1), timers by what is active (L4).

Ids such as ``B1`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient
from kafkaclient.errors import BufferFullError
from kafkaclient.producer.batches.batch import ProducerBatch
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import DROP, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import one_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.producer.support import StartProducer


MEGABYTE = 1 << 20
BUFFER = 2 * MEGABYTE
FACTOR = 1.5
"""How much more than buffer.memory the producer may take: records that are compressed, what tells
of batches and callers that wait."""
PRODUCT = Path(kafkaclient.__file__).parent
OURS = (
    tracemalloc.Filter(True, f"{PRODUCT}/*"),
    tracemalloc.Filter(False, f"{PRODUCT}/testing/*"),
    tracemalloc.Filter(False, f"{PRODUCT}/wire/codec.py"),  # which reads requests for the fake
)


@pytest.fixture
def traced() -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


def taken() -> int:
    """Bytes that the producer has; the fake's copies of what it was sent are not counted."""
    gc.collect()  # errors and their frames are cycles
    snapshot = tracemalloc.take_snapshot()
    return sum(statistic.size for statistic in snapshot.filter_traces(OURS).statistics("filename"))


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("size", "codec"),
    [(1000, "none"), *(pytest.param(n, "lz4", marks=pytest.mark.full) for n in (50, 100_000))],
)
@virtual_time
async def test_memory_at_its_peak_is_in_proportion_to_the_bound(
    producing: StartProducer, size: int, codec: str
) -> None:
    """B1: no broker answers, and the application goes on sending: a flood without waiting, then
    250 callers that wait; and again when the first flood has expired."""
    fake, kept, seen = FakeCluster(), [], []
    topic = f"of-{size}-bytes"  # other tests may have left batches of theirs
    fake.create_topic(topic, 6)
    options = {
        "buffer_memory": BUFFER,
        "compression_type": codec,
        "max_block_ms": 5000,
        "delivery_timeout_ms": 60_000,
        "on_error": kept.append,
    }
    async with producing(fake, **options) as producer:
        await producer.send_and_wait(topic, b"first")
        fake.control(ApiKey.PRODUCE, DROP, keep=True)
        buffer_pool = inspect(producer).accumulator.buffer_pool
        value = bytes(size)
        for _ in range(2):
            refused = accepted = 0
            while refused < 100:
                try:
                    producer.send_nowait(topic, value)
                    accepted += 1
                except BufferFullError:
                    refused += 1
                    await asyncio.sleep(0.001)
            assert accepted * size > 0.5 * BUFFER
            assert buffer_pool.total - buffer_pool.available > 0.85 * BUFFER
            waiting = [asyncio.create_task(producer.send(topic, value)) for _ in range(250)]
            await asyncio.sleep(2)
            seen.append(taken())
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert any(isinstance(outcome, BufferFullError) for outcome in outcomes)
            del outcomes, waiting
            for _ in range(2):
                await asyncio.sleep(35)
                seen.append(taken())
            fake.requests.clear()  # the journal of what came
            gc.collect()
            assert buffer_pool.available == buffer_pool.total, "all of it expired"
            batches = [
                thing
                for thing in gc.get_objects()
                if type(thing) is ProducerBatch and thing.result.topic == topic
            ]
            assert kept
            assert not batches, "errors that the application keeps hold no batches"
    assert 0.9 * BUFFER < max(seen) < FACTOR * BUFFER
    assert seen[-1] < MEGABYTE


def live(loop: Any) -> int:
    return sum(not handle.cancelled() for handle in loop._scheduled)


def connections(fake: FakeCluster) -> int:
    return sum(fake.connections(node) for node in range(3))


@virtual_time
async def test_timers_are_in_proportion_to_what_is_active(producing: StartProducer) -> None:
    """L4: the sender has one, and so has a connection, however many batches linger and however many
    requests are under way; those that were replaced do not pile up."""
    fake = one_topic(600)
    loop: Any = asyncio.get_running_loop()
    async with producing(fake, linger_ms=2000) as producer:
        await producer.send_and_wait("t", b"first")
        await asyncio.sleep(1)
        idle, connected = live(loop), connections(fake)
        assert idle <= 5 + connected
        for n in range(3000):
            producer.send_nowait("t", b"v", partition=n % 600)
            if n % 100 == 0:
                await asyncio.sleep(0.01)
                assert live(loop) <= idle + 5
        for node in range(3):
            fake.delay_produce(node, 0.5)
        for n in range(3000):
            producer.send_nowait("t", bytes(5000), partition=n % 600)
            if n % 100 == 0:
                await asyncio.sleep(0.01)
                fakes_own = sum(len(lane.in_flight) for lane in inspect(producer).sender.lanes)
                assert live(loop) <= idle + 5 + connections(fake) + fakes_own
                assert len(loop._scheduled) < 150 + 2 * live(loop)
        await producer.flush()
        await asyncio.sleep(5)
        assert live(loop) <= idle + connections(fake) - connected
