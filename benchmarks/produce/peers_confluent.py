"""confluent-kafka's ``Producer``: librdkafka and its threads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from benchmarks.produce.meter import Meter
from benchmarks.produce.result import WARM_UP, Measured, UnavailableError
from benchmarks.produce.supply import Supply
from benchmarks.produce.ways import CHUNK, put, put_keyed, put_with_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.produce.entry import Job
    from benchmarks.produce.ways import Put

__all__ = ["WAYS", "options"]

_BATCH = 10_000
_NO_ROOM_S = 0.001
_GIVE_UP_S = 60.0
_CRITICAL = 2  # as in syslog; librdkafka writes lesser things about connections to stderr
# Ours at the same levels: lz4's fast compressor, zstd's default.
_LEVELS = {"lz4": 0, "zstd": 3}


def options(job: Job) -> dict[str, Any]:
    """What the clients differ in is made equal; batch sizes and buffers stay librdkafka's own."""
    entry = job.entry
    level = _LEVELS.get(entry.compression)
    return {
        "bootstrap.servers": job.bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": entry.linger_ms,
        "compression.type": entry.compression,
        "log_level": _CRITICAL,
    } | ({} if level is None else {"compression.level": level})


@contextmanager
def _running(job: Job, supply: Supply) -> Iterator[Any]:
    producer = Producer(options(job))
    first = supply.chunks[0].values[0]
    for _ in range(WARM_UP):
        producer.produce(job.topic, first)
    _flush(producer)
    yield producer


def _flush(producer: Any) -> None:
    left = producer.flush(_GIVE_UP_S)
    if left:
        raise TimeoutError(f"{left} records were not delivered within {_GIVE_UP_S:.0f} s")


def _offer(job: Job, started: Callable[[], None], put: Put) -> Measured:
    """No delivery callbacks; polled now and then, and until there is room when there is none."""
    supply, meter = Supply(job, CHUNK), Meter()
    with _running(job, supply) as producer:
        send, poll, topic = producer.produce, producer.poll, job.topic
        with meter.running(started):
            for values, keys in supply.offered():
                left: Iterator[Any] | None = (
                    zip(values, keys, strict=True) if keys else iter(values)
                )
                while left := put(send, topic, left, BufferError):
                    poll(_NO_ROOM_S)
                poll(0)
            _flush(producer)
    return Measured.of(supply, meter)


async def produce(job: Job, started: Callable[[], None]) -> Measured:
    return _offer(job, started, put_keyed if job.entry.keyed else put)


async def produce_header(job: Job, started: Callable[[], None]) -> Measured:
    """As ``produce``; each record has one header of 16 bytes."""
    return _offer(job, started, put_with_header)


async def produce_batch(job: Job, started: Callable[[], None]) -> Measured:
    """Many records in a call; the dictionaries it wants are made before the clock starts."""
    supply, meter = Supply(job, _BATCH), Meter()
    with _running(job, supply) as producer:
        if not hasattr(producer, "produce_batch"):
            raise UnavailableError("this confluent-kafka has no produce_batch")
        messages = {
            id(chunk): [{"value": value} for value in chunk.values] for chunk in supply.chunks
        }
        with meter.running(started):
            for chunk in supply.offered():
                left = messages[id(chunk)]
                while left:
                    queued = producer.produce_batch(job.topic, left)
                    # What did not fit is marked in place, and goes again when there is room.
                    left = [m for m in left if m.pop("_error", None)] if queued < len(left) else []
                    producer.poll(_NO_ROOM_S if left else 0)
            _flush(producer)
    return Measured.of(supply, meter)


WAYS = {way.__name__: way for way in (produce, produce_header, produce_batch)}
