"""confluent-kafka's ``AIOProducer``, as its documentation uses it."""

from __future__ import annotations

import asyncio
from array import array
from contextlib import asynccontextmanager
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

from confluent_kafka.aio import AIOProducer

from benchmarks.produce.meter import Meter, latencies
from benchmarks.produce.peers_confluent import options
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
    producer = AIOProducer(options(job))  # its own batch_size of 1000 records
    try:
        first = supply.chunks[0].values[0]
        futures = [await producer.produce(job.topic, first) for _ in range(WARM_UP)]
        await producer.flush()
        await asyncio.gather(*futures)
        yield producer
    finally:
        await producer.close()


def _measured(supply: Supply, meter: Meter, extras: dict[str, Any] | None = None) -> Measured:
    return Measured(
        records=supply.records,
        seconds=meter.seconds,
        cpu_seconds=meter.cpu_seconds,
        value_bytes=supply.value_bytes,
        written=supply.records + WARM_UP,
        extras=extras or {},
    )


async def produce(job: Job, started: Callable[[], None]) -> Measured:
    """One task; every future is awaited, some way behind."""
    supply, meter, turns = Supply(job, _CHUNK), Meter(), Turns()
    async with _running(job, supply) as producer:
        before: list[asyncio.Future[Any]] = []
        futures: list[asyncio.Future[Any]] = []
        started()
        meter.start()
        for values, _keys in supply.offered():
            for value in values:
                futures.append(await producer.produce(job.topic, value))  # noqa: PERF401
            if len(futures) >= _BEHIND:
                for future in before:
                    await future
                before, futures = futures, []
            await turns.end_when_long()
        await producer.flush()
        for future in chain(before, futures):
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
                await (await producer.produce(job.topic, values[0]))
                took.append(perf_counter() - began)

        started()
        meter.start()
        await asyncio.gather(*(task() for _ in range(job.entry.tasks)))
        meter.stop()
    return _measured(supply, meter, latencies(took))


WAYS = {way.__name__: way for way in (produce, send_and_wait)}
