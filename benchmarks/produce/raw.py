"""Ready-made Produce requests over one plain socket: what the broker takes when a client costs
next to nothing. Neither idempotent nor looked at before the clock has stopped."""

from __future__ import annotations

import socket
import struct
import time
from array import array
from itertools import cycle
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.produce.meter import Meter, latencies
from benchmarks.produce.result import Measured
from benchmarks.produce.supply import Supply
from benchmarks.produce.ways import CHUNK
from kafkaclient.wire.produce import FIRST_WITH_TOPIC_IDS, decode_response, encode_request
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from io import BufferedReader

    from benchmarks.produce.entry import Job

__all__ = ["WAYS", "Request", "ready_made"]

_VERSION = FIRST_WITH_TOPIC_IDS - 1  # topics by name
_IN_FLIGHT = 5
_ALL_IN_SYNC = -1
_TIMEOUT_MS = 30_000
_SIZE = struct.Struct(">i")
_CORRELATION_ID_BYTES = 4


class Request(NamedTuple):
    """A whole frame, and how many records are in it."""

    frame: bytes
    records: int


def ready_made(
    topic: str, values: Sequence[bytes], batch_bytes: int, batches: int, partitions: int
) -> list[Request]:
    """One request for each partition, with batches for it and the partitions that follow it.

    ``batch_bytes`` is the most that a batch has; ``batches`` are in each request.
    """
    source = cycle(values)
    built = [_batch(source, batch_bytes) for _ in range(partitions)]
    requests = []
    for first in range(partitions):
        places = [(first + more) % partitions for more in range(batches)]
        pieces = encode_request(
            _VERSION,
            first,
            "raw-socket",
            _ALL_IN_SYNC,
            _TIMEOUT_MS,
            [(topic, [(place, built[place].buffer()) for place in places])],
        )
        requests.append(Request(b"".join(pieces), sum(built[place].count for place in places)))
    return requests


def _batch(values: Iterator[bytes], batch_bytes: int) -> BatchBuilder:
    builder, now_ms = BatchBuilder(batch_bytes), int(time.time() * 1000)
    while builder.append(now_ms, None, next(values)):
        pass
    builder.seal()
    return builder


def _connected(job: Job) -> socket.socket:
    host, _, port = job.bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _answer(reader: BufferedReader) -> bytes:
    (size,) = _SIZE.unpack(reader.read(_SIZE.size))
    return reader.read(size)


def _failed(answers: Sequence[bytes]) -> int:
    """Batches that the broker refused."""
    return sum(
        partition.error_code != 0
        for answer in answers
        for partition in decode_response(_VERSION, answer[_CORRELATION_ID_BYTES:]).partitions
    )


async def stream(job: Job, started: Callable[[], None]) -> Measured:
    """Five requests in flight until the job is over."""
    supply, meter = Supply(job, CHUNK), Meter()
    values = [value for chunk in supply.chunks for value in chunk.values]
    requests = ready_made(
        job.topic, values, job.batch_bytes, job.batches_per_request, job.entry.partitions
    )
    answers: list[bytes] = []
    records = batches = 0
    with _connected(job) as connection, connection.makefile("rb") as reader:
        # Once around, so that each partition's log is open.
        for request in requests:
            connection.sendall(request.frame)
            answers.append(_answer(reader))
        warm_up = sum(request.records for request in requests)
        with meter.running(started):
            in_flight, end = 0, perf_counter() + job.seconds
            for request in cycle(requests):
                if perf_counter() >= end or (job.records is not None and records >= job.records):
                    break
                if in_flight == _IN_FLIGHT:
                    answers.append(_answer(reader))
                    in_flight -= 1
                connection.sendall(request.frame)
                in_flight += 1
                records += request.records
                batches += job.batches_per_request
            answers += [_answer(reader) for _ in range(in_flight)]
    frames = sum(len(request.frame) for request in requests) / len(requests)
    return Measured(
        records=records,
        seconds=meter.seconds,
        cpu_seconds=meter.cpu_seconds,
        value_bytes=supply.value_bytes,
        written=records + warm_up,
        errors=_failed(answers),
        extras={
            "batch_bytes_avg": frames / job.batches_per_request,
            "batches_per_request": job.batches_per_request,
            "records_per_request": warm_up / len(requests),
            "batches": batches,
        },
    )


async def round_trip(job: Job, started: Callable[[], None]) -> Measured:
    """One record in each request, one request at a time."""
    supply, meter = Supply(job, 1), Meter()
    one = supply.chunks[0].values
    (request, *_) = ready_made(job.topic, one, 61 + 21 + len(one[0]), 1, 1)
    took, answers = array("d"), list[bytes]()
    with (
        _connected(job) as connection,
        connection.makefile("rb") as reader,
        meter.running(started),
    ):
        for _ in supply.offered():
            began = perf_counter()
            connection.sendall(request.frame)
            answers.append(_answer(reader))
            took.append(perf_counter() - began)
    return Measured(
        records=supply.records,
        seconds=meter.seconds,
        cpu_seconds=meter.cpu_seconds,
        value_bytes=supply.value_bytes,
        written=supply.records * request.records,
        errors=_failed(answers),
        extras=latencies(took) | {"batch_bytes_avg": float(len(request.frame))},
    )


WAYS = {way.__name__: way for way in (stream, round_trip)}
