"""kafka-python's ``KafkaProducer``, with its thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka import KafkaProducer

from benchmarks.produce.meter import Meter
from benchmarks.produce.result import WARM_UP, Measured
from benchmarks.produce.supply import Supply

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.produce.entry import Job

__all__ = ["WAYS"]

_CHUNK = 32


async def send(job: Job, started: Callable[[], None]) -> Measured:
    """Futures are dropped; flushed at the end."""
    entry, supply, meter = job.entry, Supply(job, _CHUNK), Meter()
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
        started()
        meter.start()
        for values, _keys in supply.offered():
            for value in values:
                producer.send(job.topic, value)
        producer.flush()
        meter.stop()
    finally:
        producer.close()
    return Measured(
        records=supply.records,
        seconds=meter.seconds,
        cpu_seconds=meter.cpu_seconds,
        value_bytes=supply.value_bytes,
        written=supply.records + WARM_UP,
    )


WAYS = {way.__name__: way for way in (send,)}
