"""aiokafka, with acks=all and idempotence on."""

from __future__ import annotations

import asyncio
from array import array
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from benchmarks.produce.meter import Meter, latencies
from benchmarks.produce.result import WARM_UP, Measured
from benchmarks.produce.supply import Supply
from benchmarks.produce.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from benchmarks.produce.entry import Job

__all__ = ["WAYS"]

_CHUNK = 32
_BEHIND = 20_000


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


def _measured(supply: Supply, meter: Meter, extras: dict[str, Any] | None = None) -> Measured:
    return Measured(
        records=supply.records,
        seconds=meter.seconds,
        cpu_seconds=meter.cpu_seconds,
        value_bytes=supply.value_bytes,
        written=supply.records + WARM_UP,
        extras=extras or {},
    )


async def send(job: Job, started: Callable[[], None]) -> Measured:
    """Futures are dropped, as our handles are in the same loop."""
    supply, meter, turns = Supply(job, _CHUNK), Meter(), Turns()
    async with _running(job, supply) as producer:
        started()
        meter.start()
        for values, _keys in supply.offered():
            for value in values:
                await producer.send(job.topic, value)
            await turns.end_when_long()
        await producer.flush()
        meter.stop()
    return _measured(supply, meter)


async def send_awaited(job: Job, started: Callable[[], None]) -> Measured:
    """Every future is awaited, some way behind the sending."""
    supply, meter, turns = Supply(job, _CHUNK), Meter(), Turns()
    async with _running(job, supply) as producer:
        before: list[asyncio.Future[Any]] = []
        futures: list[asyncio.Future[Any]] = []
        started()
        meter.start()
        for values, _keys in supply.offered():
            for value in values:
                futures.append(await producer.send(job.topic, value))  # noqa: PERF401
            if len(futures) >= _BEHIND:
                for future in before:
                    await future
                before, futures = futures, []
            await turns.end_when_long()
        await producer.flush()
        for future in before + futures:
            await future
        meter.stop()
    return _measured(supply, meter)


async def send_and_wait(job: Job, started: Callable[[], None]) -> Measured:
    """So many tasks, each with one record at a time."""
    supply, meter = Supply(job, 1), Meter()
    async with _running(job, supply) as producer:
        offered, took = supply.offered(), array("d")

        async def task() -> None:
            for values, _keys in offered:
                began = perf_counter()
                await producer.send_and_wait(job.topic, values[0])
                took.append(perf_counter() - began)

        started()
        meter.start()
        await asyncio.gather(*(task() for _ in range(job.entry.tasks)))
        meter.stop()
    return _measured(supply, meter, latencies(took))


WAYS = {way.__name__: way for way in (send, send_awaited, send_and_wait)}
