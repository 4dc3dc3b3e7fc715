"""The ways to send of aiokafka's API, for aiokafka's own producer and for the drop-in."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiokafka

from benchmarks.produce.meter import Meter, latencies
from benchmarks.produce.result import WARM_UP, Measured
from benchmarks.produce.supply import Supply
from benchmarks.produce.turns import Turns
from benchmarks.produce.ways import CHUNK, awaited_behind, in_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from benchmarks.produce.entry import Job

    Way = Callable[[Job, Callable[[], None]], Awaitable[Measured]]

__all__ = ["ways"]


def ways(prepare: Callable[[], None]) -> dict[str, Way]:
    """Each way's function by its name. ``prepare()`` runs before a run creates its producer, which
    is ``aiokafka.AIOKafkaProducer`` afterwards."""

    def prepared(way: Way) -> Way:
        async def run(job: Job, started: Callable[[], None]) -> Measured:
            prepare()
            return await way(job, started)

        return run

    return {way.__name__: prepared(way) for way in (send, send_awaited, send_and_wait, faststream)}


def _options(job: Job) -> dict[str, Any]:
    """acks=all and idempotence, as this package's producer has by default."""
    entry = job.entry
    return {
        "bootstrap_servers": job.bootstrap,
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": int(entry.linger_ms),
        "compression_type": None if entry.compression == "none" else entry.compression,
    }


@asynccontextmanager
async def _running(job: Job, supply: Supply) -> AsyncIterator[Any]:
    producer = aiokafka.AIOKafkaProducer(**_options(job))
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
    """Each task sends one record at a time."""
    supply, meter = Supply(job, 1), Meter()
    async with _running(job, supply) as producer:
        with meter.running(started):
            took = await in_tasks(supply, job.topic, job.entry.tasks, producer.send_and_wait)
    return Measured.of(supply, meter, latencies(took))


async def faststream(job: Job, started: Callable[[], None]) -> Measured:
    """FastStream's ``publish``, which waits for the acknowledgement, in the entry's tasks."""
    from faststream.kafka import KafkaBroker  # noqa: PLC0415 - of the development group

    options = _options(job)
    servers = options.pop("bootstrap_servers").split(",")
    supply, meter = Supply(job, 1), Meter()
    async with KafkaBroker(servers, logger=None, **options) as broker:
        await broker.start()

        async def publish(topic: str, value: bytes) -> None:
            await broker.publish(value, topic)

        first = supply.chunks[0].values[0]
        for _ in range(WARM_UP):
            await broker.publish(first, job.topic, no_confirm=True)
        with meter.running(started):
            took = await in_tasks(supply, job.topic, job.entry.tasks, publish)
    return Measured.of(supply, meter, latencies(took))
