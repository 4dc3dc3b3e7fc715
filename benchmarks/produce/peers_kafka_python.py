"""kafka-python's ``KafkaProducer``, with its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka import KafkaProducer

from benchmarks.produce.meter import Meter
from benchmarks.produce.result import WARM_UP, Measured
from benchmarks.produce.supply import Supply
from benchmarks.produce.ways import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.produce.entry import Job

__all__ = ["WAYS"]


async def send(job: Job, started: Callable[[], None]) -> Measured:
    """Futures are dropped; flushed at the end."""
    entry, supply, meter = job.entry, Supply(job, CHUNK), Meter()
    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=int(entry.linger_ms),
        compression_type=None if entry.compression == "none" else entry.compression,
    )
    try:
        first = supply.chunks[0].values[0]
        for _ in range(WARM_UP):
            producer.send(job.topic, first)
        producer.flush()
        with meter.running(started):
            for values, _keys in supply.offered():
                for value in values:
                    producer.send(job.topic, value)
            producer.flush()
    finally:
        producer.close()
    return Measured.of(supply, meter)


WAYS = {way.__name__: way for way in (send,)}
