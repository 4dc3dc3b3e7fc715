"""confluent-kafka's ``AIOProducer``, as its documentation uses it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka.aio import AIOProducer

from benchmarks.produce.meter import Meter, latencies
from benchmarks.produce.peers_confluent import options
from benchmarks.produce.result import WARM_UP, Measured
from benchmarks.produce.supply import Supply
from benchmarks.produce.ways import CHUNK, awaited_behind, in_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from benchmarks.produce.entry import Job

__all__ = ["WAYS"]


@asynccontextmanager
async def _running(job: Job, supply: Supply) -> AsyncIterator[Any]:
    producer = AIOProducer(options(job))  # its own batch_size of 1000 records
    try:
        first = supply.chunks[0].values[0]
        futures = [await producer.produce(job.topic, first) for _ in range(WARM_UP)]
        await producer.flush()
        await asyncio.gather(*futures)
        yield producer
    finally:
        await producer.close()


async def produce(job: Job, started: Callable[[], None]) -> Measured:
    """One task; every future is awaited, some way behind."""
    supply, meter = Supply(job, CHUNK), Meter()
    async with _running(job, supply) as producer:
        with meter.running(started):
            await awaited_behind(supply, job.topic, producer.produce, producer.flush)
    return Measured.of(supply, meter)


async def send_and_wait(job: Job, started: Callable[[], None]) -> Measured:
    """So many tasks, each with one record at a time."""
    supply, meter = Supply(job, 1), Meter()
    async with _running(job, supply) as producer:

        async def produce_and_wait(topic: str, value: bytes) -> None:
            await (await producer.produce(topic, value))

        with meter.running(started):
            took = await in_tasks(supply, job.topic, job.entry.tasks, produce_and_wait)
    return Measured.of(supply, meter, latencies(took))


WAYS = {way.__name__: way for way in (produce, send_and_wait)}
