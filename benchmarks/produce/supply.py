"""The records of a run, made before its clock starts."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.produce.entry import FLIGHTS
from examples.flights import flights
from kafkaclient.perf.traffic import random_payloads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.produce.entry import Job

__all__ = ["HEADERS", "Chunk", "Supply"]

_POOL_BYTES = 16 * 1024 * 1024
_FEWEST, _MOST = 16_384, 131_072
_FLIGHTS = 300_000
_KEY_BYTES = 8
HEADERS = [("trace", b"0123456789a")]
"""One header, 16 bytes in all."""


class Chunk(NamedTuple):
    """So many records that nobody looks at a clock in between."""

    values: list[bytes]
    keys: list[bytes]
    """Empty, or one for each value."""


class Supply:
    """Values of random capital letters, as Java's tool makes them, or flights; over and over.

    ``chunk``: records in each chunk. ``records`` counts what was taken.
    """

    def __init__(self, job: Job, chunk: int) -> None:
        self._job = job
        if job.entry.value_bytes == FLIGHTS:
            values = _flights(Path(job.folder) / "flights.jsonl")
        else:
            values = _letters(job.entry.value_bytes)
        # A whole number of chunks, so that a chunk's records are as many as said.
        values = values[: max(len(values) // chunk, 1) * chunk]
        keys = _keys(len(values)) if job.entry.keyed else []
        self.chunks = [
            Chunk(values[start : start + chunk], keys[start : start + chunk])
            for start in range(0, len(values), chunk)
        ]
        self.value_bytes = sum(map(len, values)) / len(values)
        self.records = 0

    def offered(self) -> Iterator[Chunk]:
        """Chunks from now until the job's seconds are over, or its records are reached."""
        job = self._job
        limit = None if job.records is None else max(1, job.records // job.entry.slow)
        end = perf_counter() + job.seconds
        for chunk in cycle(self.chunks):
            if perf_counter() >= end or (limit is not None and self.records >= limit):
                return
            self.records += len(chunk.values)
            yield chunk


def _flights(path: Path) -> list[bytes]:
    # To read them out of their package takes seconds; a process for each run would do it again.
    if not path.exists():
        path.write_bytes(b"\n".join(value for _key, value in flights(_FLIGHTS)))
    return path.read_bytes().split(b"\n")


def _letters(size: int) -> list[bytes]:
    letters = random_payloads(size)
    number = min(max(_POOL_BYTES // size, _FEWEST), _MOST)
    return [next(letters)[1] for _ in range(number)]


def _keys(number: int) -> list[bytes]:
    rng = Random(1)
    return [rng.randbytes(_KEY_BYTES) for _ in range(number)]
