"""aiokafka, with acks=all and idempotence on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from benchmarks.produce.meter import Meter, latencies
from benchmarks.produce.result import WARM_UP, Measured
from benchmarks.produce.supply import Supply
from benchmarks.produce.turns import Turns
from benchmarks.produce.ways import CHUNK, awaited_behind, in_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from benchmarks.produce.entry import Job

__all__ = ["WAYS"]


@asynccontextmanager
async def _running(job: Job, supply: Supply) -> AsyncIterator[Any]:
    entry = job.entry
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=int(entry.linger_ms),
        compression_type=None if entry.compression == "none" else entry.compression,
    )
    await producer.start()
    try:
        first = supply.chunks[0].values[0]
        for _ in range(WARM_UP):
            await producer.send(job.topic, first)
        await producer.flush()
        yield producer
    finally:
        await producer.stop()


async def send(job: Job, started: Callable[[], None]) -> Measured:
    """Futures are dropped, as our handles are in the same loop."""
    supply, meter, turns = Supply(job, CHUNK), Meter(), Turns()
    async with _running(job, supply) as producer:
        with meter.running(started):
            for values, _keys in supply.offered():
                for value in values:
                    await producer.send(job.topic, value)
                await turns.end_when_long()
            await producer.flush()
    return Measured.of(supply, meter)


async def send_awaited(job: Job, started: Callable[[], None]) -> Measured:
    """Every future is awaited, some way behind the sending."""
    supply, meter = Supply(job, CHUNK), Meter()
    async with _running(job, supply) as producer:
        with meter.running(started):
            await awaited_behind(supply, job.topic, producer.send, producer.flush)
    return Measured.of(supply, meter)


async def send_and_wait(job: Job, started: Callable[[], None]) -> Measured:
    """So many tasks, each with one record at a time."""
    supply, meter = Supply(job, 1), Meter()
    async with _running(job, supply) as producer:
        with meter.running(started):
            took = await in_tasks(supply, job.topic, job.entry.tasks, producer.send_and_wait)
    return Measured.of(supply, meter, latencies(took))


WAYS = {way.__name__: way for way in (send, send_awaited, send_and_wait)}
