"""Telemetry as many producers would write it, without brokers: for the report's tests and target.

``python -m benchmarks.telemetry_facts build/facts --batches 10000000`` writes two runs; with
``--master local[2]`` on Spark's executors.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafkaclient.spark import spark_session
from kafkaclient.telemetry import SCHEMA, SCHEMA_VERSION, VERSION_KEY

_STARTED = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shape:
    """A run: each batch takes its broker ``service_ms``, spread by a gamma distribution."""

    batches: int
    producers: int = 4
    partitions: int = 12
    service_ms: tuple[float, ...] = (20.0, 2.0, 2.0)
    shares: tuple[float, ...] = (1.0, 1.0, 1.0)
    """How often each broker is chosen, in proportion."""
    batches_per_s: float = 5000.0
    failed: float = 0.0
    rows_per_file: int = 8192


def write_run(folder: Path, shape: Shape, seed: int) -> None:
    """Write the run's files, as its producers would have; the same for the same seed."""
    for share in shares(shape, seed):
        share.write(folder, shape)


@dataclass(frozen=True)
class Share:
    """An hour of one producer of a run."""

    producer: int
    hour: int
    seed: int

    def write(self, folder: Path, shape: Shape) -> None:
        """Write the files of the hour, ``date=.../hour=...``."""
        rng = np.random.default_rng((self.seed, self.producer, self.hour))
        # Started a second apart: their axes differ, the report's is one.
        started = _STARTED + timedelta(seconds=self.producer)
        schema = SCHEMA.with_metadata(
            {
                "kafkaclient.started": started.isoformat(),
                VERSION_KEY: str(SCHEMA_VERSION),
                "kafkaclient.partitioner": "late",
            }
        )
        name = f"batches-p{self.producer}-{self.seed:06x}{self.producer:06x}"
        per_s = shape.batches_per_s / shape.producers
        per_hour = int(3600 * per_s)
        begin, each = self.hour * per_hour, shape.batches // shape.producers
        end = min(begin + per_hour, each)
        at = _STARTED + timedelta(hours=self.hour)
        path = folder / f"date={at:%Y-%m-%d}" / f"hour={at:%H}"
        path.mkdir(parents=True, exist_ok=True)
        files_before = self.hour * -(-per_hour // shape.rows_per_file)
        for number, first in enumerate(range(begin, end, shape.rows_per_file), files_before):
            count = min(shape.rows_per_file, end - first)
            created = (first + np.sort(rng.random(count)) * count) / per_s
            table = _rows(rng, shape, f"p{self.producer}", created, schema)
            pq.write_table(table, path / f"{name}-{number:06d}.parquet")


def shares(shape: Shape, seed: int) -> list[Share]:
    """The shares of a run, hour by hour."""
    hours = max(1, -(-shape.batches // int(3600 * shape.batches_per_s)))
    return [Share(p, hour, seed) for hour in range(hours) for p in range(shape.producers)]


def _rows(
    rng: np.random.Generator, shape: Shape, client_id: str, created: np.ndarray, schema: pa.Schema
) -> pa.Table:
    count = len(created)
    shares = np.array(shape.shares) / sum(shape.shares)
    broker = rng.choice(len(shares), count, p=shares)
    nodes = len(shares)
    partition = broker + nodes * rng.integers(0, shape.partitions // nodes, count)
    bound = created + rng.gamma(4.0, 0.00125, count)
    sent = bound + rng.gamma(2.0, 0.0001, count)
    took = rng.gamma(8.0, np.array(shape.service_ms)[broker] / 8e3)
    failed = rng.random(count) < shape.failed
    columns = {
        "client_id": pa.array([client_id]).take(pa.array(np.zeros(count, np.int32))),
        "topic": pa.array(["load"]).take(pa.array(np.zeros(count, np.int32))),
        "partition": pa.array(partition),
        "broker": pa.array(broker),
        "records": pa.array(rng.integers(10, 31, count)),
        "bytes": pa.array(rng.integers(1000, 16001, count)),
        "attempts": pa.array(np.where(rng.random(count) < 0.001, 2, 1)),
        "created_s": pa.array(created),
        "bound_s": pa.array(bound),
        "sent_s": pa.array(sent),
        "acknowledged_s": pa.array(sent + took, mask=failed),
        "done_s": pa.array(sent + took),
        "queued_batches": pa.array(rng.integers(0, 4, count)),
        "queued_bytes": pa.array(rng.integers(0, 65536, count)),
        "in_flight": pa.array(rng.integers(0, 5, count)),
        "window": pa.array(np.full(count, 5)),
        "bound_by": pa.array(["late", "append"]).take(
            pa.array((rng.random(count) < 0.1).astype(np.int32))
        ),
        "error": pa.array(["DeliveryTimeoutError"]).take(
            pa.array(np.zeros(count, np.int32), mask=~failed)
        ),
    }
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, default=10_000_000)
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--batches-per-s", type=float, default=5000.0)
    parser.add_argument("--master", help="write on Spark's executors, such as local[2]")
    arguments = parser.parse_args()
    even = Shape(
        arguments.batches // 2,
        producers=arguments.producers,
        batches_per_s=arguments.batches_per_s,
        rows_per_file=65_536,
    )
    runs = {"even": even, "avoiding": replace(even, shares=(0.2, 1.0, 1.0))}
    work = [
        (arguments.folder.absolute() / name, shape, share)
        for seed, (name, shape) in enumerate(runs.items(), 1)
        for share in shares(shape, seed)
    ]
    if arguments.master is None:
        for each in work:
            _write(each)
    else:
        spark = spark_session("telemetry_facts", arguments.master)
        spark.sparkContext.parallelize(work, len(work)).foreach(_write)
        spark.stop()


def _write(work: tuple[Path, Shape, Share]) -> None:
    folder, shape, share = work
    share.write(folder, shape)


if __name__ == "__main__":
    main()
