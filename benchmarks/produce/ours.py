"""This package's producer, in every way there is to send."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.produce.meter import Meter, cpu_share, latencies, rss_sampled, ticking
from benchmarks.produce.result import WARM_UP, Measured, UnavailableError
from benchmarks.produce.supply import Supply
from benchmarks.produce.turns import Turns
from benchmarks.produce.ways import (
    CHUNK,
    awaited_behind,
    in_tasks,
    put,
    put_keyed,
    put_with_header,
)
from kafkaclient.errors import BufferFullError
from kafkaclient.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from benchmarks.produce.entry import Job
    from benchmarks.produce.ways import Put

__all__ = ["WAYS"]

_MANY = 10_000
_ROWS = 65_536
_NO_ROOM_S = 0.001
_LEVELS = {"lz4": {"compression_lz4_level": 9}, "zstd": {"compression_zstd_level": 3}}
_SETTLED_S = 1.0
_RSS_EVERY_S = 0.25
_LONGER_S = 2.0


class Run:
    """A started producer that knows its topic, and what is measured of it."""

    def __init__(self, producer: Producer, supply: Supply, topic: str) -> None:
        self.producer = producer
        self.supply = supply
        self.topic = topic
        self.meter = Meter()
        self.extras: dict[str, Any] = {}

    def measured(self) -> Measured:
        metrics = self.producer.metrics()
        totals = metrics.partitions.values()
        batches = sum(p["batch-send-total"] for p in totals)
        per_request = metrics.producer["records-per-request-avg"]
        records = sum(p["record-send-total"] for p in totals)
        if batches:
            self.extras |= {
                "batch_bytes_avg": sum(p["byte-total"] for p in totals) / batches,
                "records_per_request": per_request,
                "batches_per_request": per_request * batches / records,
                "batches": batches,
            }
        errors = int(metrics.producer["record-error-total"])
        return Measured.of(self.supply, self.meter, self.extras, errors=errors)


@asynccontextmanager
async def _running(job: Job, chunk: int) -> AsyncIterator[Run]:
    """What the clients differ in is made equal: acks=all and idempotence are our defaults."""
    entry = job.entry
    supply = Supply(job, chunk)
    options: dict[str, Any] = {
        "linger_ms": entry.linger_ms,
        "compression_type": entry.compression,
        **_LEVELS.get(entry.compression, {}),
    }
    async with Producer(job.bootstrap, **options) as producer:
        await producer.partitions_for(job.topic)
        first = supply.chunks[0].values[0]
        for _ in range(WARM_UP):
            producer.send_nowait(job.topic, first)
        await producer.flush()
        yield Run(producer, supply, job.topic)


def _method(producer: Producer, name: str) -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = getattr(producer, name)
    except AttributeError:
        raise UnavailableError(f"the producer has no {name} yet") from None
    return found


# --- the ways -------------------------------------------------------------------------------------


async def _offer(run: Run, put: Put) -> None:
    """``send_nowait`` as fast as it goes; handles are dropped."""
    send, topic, turns = run.producer.send_nowait, run.topic, Turns()
    for values, keys in run.supply.offered():
        left: Iterator[Any] | None = zip(values, keys, strict=True) if keys else iter(values)
        while left := put(send, topic, left, BufferFullError):
            await turns.wait(_NO_ROOM_S)
        await turns.end_when_long()
    await run.producer.flush()


async def send_nowait(job: Job, started: Callable[[], None]) -> Measured:
    async with _running(job, CHUNK) as run:
        with run.meter.running(started):
            await _offer(run, put_keyed if job.entry.keyed else put)
        return run.measured()


async def send_nowait_header(job: Job, started: Callable[[], None]) -> Measured:
    """As ``send_nowait``; each record has one header of 16 bytes."""
    async with _running(job, CHUNK) as run:
        with run.meter.running(started):
            await _offer(run, put_with_header)
        return run.measured()


async def send(job: Job, started: Callable[[], None]) -> Measured:
    """Every handle is awaited, some way behind the sending."""
    async with _running(job, CHUNK) as run:
        with run.meter.running(started):
            await awaited_behind(run.supply, run.topic, run.producer.send, run.producer.flush)
        return run.measured()


async def send_dropped(job: Job, started: Callable[[], None]) -> Measured:
    """``send``, which waits for room only; handles are dropped."""
    async with _running(job, CHUNK) as run:
        send, topic, turns = run.producer.send, run.topic, Turns()
        with run.meter.running(started):
            for values, _keys in run.supply.offered():
                for value in values:
                    await send(topic, value)
                await turns.end_when_long()
            await run.producer.flush()
        return run.measured()


async def send_and_wait(job: Job, started: Callable[[], None]) -> Measured:
    """So many tasks, each with one record at a time."""
    async with _running(job, 1) as run:
        with run.meter.running(started):
            send = run.producer.send_and_wait
            took = await in_tasks(run.supply, run.topic, job.entry.tasks, send)
        run.extras |= latencies(took)
        return run.measured()


async def _offer_many(run: Run) -> None:
    send_many, turns = _method(run.producer, "send_many"), Turns()
    deliveries = []
    for values, keys in run.supply.offered():
        deliveries.append(await send_many(run.topic, values, keys=keys or None))
        await turns.end_when_long()
    for delivery in deliveries:
        await delivery


async def send_many(job: Job, started: Callable[[], None]) -> Measured:
    async with _running(job, _MANY) as run:
        with run.meter.running(started):
            await _offer_many(run)
        return run.measured()


async def send_arrow(job: Job, started: Callable[[], None]) -> Measured:
    """Columns made before the clock starts, as whoever has columns has them."""
    async with _running(job, _ROWS) as run:
        send_arrow = _method(run.producer, "send_arrow")
        pyarrow = import_module("pyarrow")
        columns = {
            id(chunk): pyarrow.table(
                {"value": pyarrow.array(chunk.values, pyarrow.binary())}
                | ({"key": pyarrow.array(chunk.keys, pyarrow.binary())} if chunk.keys else {})
            )
            for chunk in run.supply.chunks
        }
        turns, deliveries = Turns(), []
        with run.meter.running(started):
            for chunk in run.supply.offered():
                deliveries.append(await send_arrow(run.topic, columns[id(chunk)]))
                await turns.end_when_long()
            for delivery in deliveries:
                await delivery
        return run.measured()


# --- the event loop, memory, scale ----------------------------------------------------------------


async def ticking_send_nowait(job: Job, started: Callable[[], None]) -> Measured:
    async with _running(job, CHUNK) as run:
        with run.meter.running(started):
            async with ticking(run.extras):
                await _offer(run, put_keyed if job.entry.keyed else put)
        return run.measured()


async def ticking_send_many(job: Job, started: Callable[[], None]) -> Measured:
    async with _running(job, _MANY) as run:
        with run.meter.running(started):
            async with ticking(run.extras):
                await _offer_many(run)
        return run.measured()


async def ticking_idle(job: Job, started: Callable[[], None]) -> Measured:
    """What the timer shows in a process that does nothing, beside one that does all it can."""
    busy = replace(
        job, seconds=job.seconds + _LONGER_S, entry=replace(job.entry, way="send_nowait")
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.produce.worker"), stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(busy.to_json().encode())
    process.stdin.close()
    await process.stdout.readline()  # it says that it has started
    meter, extras = Meter(), dict[str, Any]()
    with meter.running(started):
        async with ticking(extras):
            await asyncio.sleep(job.seconds)
    told, _ = await process.communicate()
    beside = json.loads(told.splitlines()[-1])
    return Measured(
        records=0,
        seconds=meter.seconds,
        cpu_seconds=meter.cpu_seconds,
        value_bytes=0.0,
        written=beside["written"],
        errors=beside["errors"],
        extras=extras,
    )


async def overload(job: Job, started: Callable[[], None]) -> Measured:
    """More is offered than the broker takes, for a long time."""
    async with _running(job, CHUNK) as run:
        with run.meter.running(started):
            async with rss_sampled(run.extras, _RSS_EVERY_S):
                await _offer(run, put_keyed if job.entry.keyed else put)
        run.extras["buffer_memory_mb"] = run.producer.config.buffer_memory / (1024 * 1024)
        exhausted = run.producer.metrics().producer["buffer-exhausted-total"]
        run.extras["refused_for_lack_of_room"] = int(exhausted)
        return run.measured()


async def send_nowait_then_idle(job: Job, started: Callable[[], None]) -> Measured:
    """What a producer costs with so many partitions, and what it costs to have one around."""
    async with _running(job, CHUNK) as run:
        with run.meter.running(started):
            await _offer(run, put_keyed if job.entry.keyed else put)
        await asyncio.sleep(_SETTLED_S)
        run.extras["idle_cpu_share"] = await cpu_share(2 * job.seconds)
        return run.measured()


WAYS = {
    way.__name__: way
    for way in (
        send_nowait,
        send_nowait_header,
        send,
        send_dropped,
        send_and_wait,
        send_many,
        send_arrow,
        ticking_send_nowait,
        ticking_send_many,
        ticking_idle,
        overload,
        send_nowait_then_idle,
    )
}
