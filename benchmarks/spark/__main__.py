"""Spark jobs with ``format("kafkaclient")`` and with Spark's own connector, in one run.

Each has a Spark of its own on two cores, which stays warm; they take turns on one broker. The
peer is spark-sql-kafka of the PySpark in another environment (``--peer-python``), which ``make
bench-spark`` makes. Writes OUT/summary.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from benchmarks.spark.workers import OURS, PEER, at, spark_worker, temporary_topics
from experiments.machine import machine_facts
from kafkaclient.producer.producer import Producer
from kafkaclient.reader import Reader
from kafkaclient.testing.cluster import LocalCluster

if TYPE_CHECKING:
    from benchmarks.spark.workers import Worker

_WARM_UP_ROUNDS = 3
_MEASURED_S = 60
_WARM_UP_S = 45  # a stream's first batch, what has come meanwhile, and the JVM's compiler
_AFTERWARDS_S = 15
_OFFER_EVERY_S = 0.02
_ROW_BYTES = 100
_FIRST_ROWS = 5_000
_STAMP_DIGITS = 13


async def _first_batch(bootstrap: str, worker: Worker, out: Path) -> dict[str, Any]:
    """A query in a Spark that has run nothing, from start() to the end of its first batch."""
    source, copied = f"first-in-{worker.connector}", f"first-out-{worker.connector}"
    async with temporary_topics(bootstrap, source, copied):
        async with Producer(bootstrap) as producer:
            await producer.send_many(source, [bytes(_ROW_BYTES)] * _FIRST_ROWS)
        await worker.tell(**_copy_job(bootstrap, source, copied, out, 1, 1))
        await worker.answer()
        done = await worker.answer()
    run = {"client": worker.connector, "job": "first", "rows": _FIRST_ROWS}
    run |= {"seconds": done["first_batch_s"]}
    _tell(run)
    return run


def _copy_job(
    bootstrap: str, source: str, copied: str, out: Path, seconds: float, trigger_s: int
) -> dict[str, Any]:
    """``seconds`` count from the end of the first batch."""
    return {
        "do": "copy",
        "topic": source,
        "to": copied,
        "options": at(bootstrap),
        "checkpoint": str((out / f"checkpoint-{source}-{time.time_ns()}").resolve()),
        "trigger": f"{trigger_s} seconds",
        "seconds": seconds,
    }


async def _batches(
    bootstrap: str, workers: list[Worker], rows: int, repeat: int, reading: dict[str, str]
) -> list[dict[str, Any]]:
    """Each connector writes a topic of its own, and then reads the same one; the first rounds
    warm up and do not count."""
    runs = []
    writing = {**at(bootstrap), "kafka.acks": "all", "kafka.compression.type": "none"}
    for number in range(1 - _WARM_UP_ROUNDS, repeat + 1):
        topics = {w.connector: f"batch{number}-{w.connector}" for w in workers}
        async with temporary_topics(bootstrap, *topics.values()):
            for job in ("make", "write", "read"):
                for worker in workers:
                    topic = topics[worker.connector if job == "write" else OURS]
                    options = writing if job == "write" else at(bootstrap) | reading
                    done = await worker.do(do=job, rows=rows, topic=topic, options=options)
                    assert done["rows"] == rows, (worker.connector, job, done)
                    run = {"run": number, "job": job, "client": worker.connector, **done}
                    run["rows_per_s"] = rows / done["seconds"]
                    _tell(run)
                    if number > 0:
                        runs.append(run)
    return runs


async def _stream(
    bootstrap: str, worker: Worker, rate: int, out: Path, trigger_s: int
) -> dict[str, Any]:
    """Records arrive at ``rate`` and a query copies them; timed by brokers' clocks alone."""
    source, copied = f"in-{worker.connector}-{rate}", f"out-{worker.connector}-{rate}"
    seconds = _WARM_UP_S + _MEASURED_S
    async with temporary_topics(bootstrap, source, copied):
        job = _copy_job(bootstrap, source, copied, out, seconds + _AFTERWARDS_S, trigger_s)
        await worker.tell(**job)
        await worker.answer()
        began = time.time()
        await _offer(bootstrap, source, rate, seconds)
        offered = time.time() - began
        done = await worker.answer()
        copies, latencies = await _latencies(bootstrap, copied, (began + _WARM_UP_S) * 1000)
    run = {
        "client": worker.connector,
        "job": "stream",
        "rows": rate * seconds,
        "copied": copies,
        "offered_per_s": rate * seconds / offered,
        **latencies,
    }
    _tell(run)
    return {**run, "batches": done["batches"]}


async def _offer(bootstrap: str, topic: str, rate: int, seconds: int) -> None:
    """In bulk, so that the load leaves the two cores to Spark and the broker."""
    value, sent, began = bytes(_ROW_BYTES), 0, time.monotonic()
    async with Producer(bootstrap) as producer:
        while sent < rate * seconds:
            due = min(int((time.monotonic() - began) * rate), rate * seconds)
            await producer.send_many(topic, [value] * (due - sent))
            sent = due
            await asyncio.sleep(_OFFER_EVERY_S)


async def _latencies(bootstrap: str, topic: str, after_ms: float) -> tuple[int, dict[str, float]]:
    """Copies, and how long after its record's own timestamp the broker appended each."""
    rows, found = 0, []
    async with Reader(bootstrap) as reader:
        starts = await reader.offsets(topic, at="earliest")
        ends = await reader.offsets(topic, at="latest")
        async for batch in reader.read({p: (starts[p], ends[p]) for p in starts}):
            table = pa.record_batch(batch)
            rows += len(table)
            texts = pc.binary_slice(table["value"], 0, _STAMP_DIGITS).cast(pa.string())
            made = np.asarray(texts.cast(pa.int64()))
            appended = np.asarray(table["timestamp"].cast(pa.int64()))
            found.append((appended - made)[made >= after_ms])
    p50, p99, most = np.percentile(np.concatenate(found), (50, 99, 100))
    return rows, {"p50_ms": float(p50), "p99_ms": float(p99), "max_ms": float(most)}


def _tell(run: dict[str, Any]) -> None:
    told = {name: round(v, 2) if isinstance(v, float) else v for name, v in run.items()}
    sys.stderr.write(f"{told}\n")


async def _main(given: argparse.Namespace) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(LocalCluster(1, long_lived=True))
        ours = spark_worker(Path(sys.executable), OURS, given.setting)
        workers = [await stack.enter_async_context(ours)]
        if given.peer_python:
            workers.append(await stack.enter_async_context(spark_worker(given.peer_python, PEER)))
        bootstrap, reading = cluster.bootstrap, dict(each.split("=", 1) for each in given.reading)
        runs = [await _first_batch(bootstrap, worker, given.out) for worker in workers]
        if given.repeat:
            runs += await _batches(bootstrap, workers, given.rows, given.repeat, reading)
        for rate in filter(None, given.rate):
            for worker in workers if rate == given.rate[0] else workers[:1]:
                runs.append(await _stream(bootstrap, worker, rate, given.out, given.trigger))
        spark = {worker.connector: worker.spark for worker in workers}
    return {
        "machine": machine_facts(),
        "spark": spark,
        "settings": given.setting,
        "reading": given.reading,
        "runs": runs,
    }


def _show(found: dict[str, Any]) -> None:
    console = Console(highlight=False)
    table = Table("job", "client", "rows/s", "seconds", "times the peer")
    medians = {}
    for job in ("first", "make", "write", "read"):
        for client in found["spark"]:
            runs = [r for r in found["runs"] if (r["job"], r["client"]) == (job, client)]
            if runs:
                medians[job, client] = median(run["seconds"] for run in runs)
    for (job, client), seconds in medians.items():
        rows = next(run["rows"] for run in found["runs"] if run["job"] == job)
        ratio = medians.get((job, PEER), 0) / seconds
        shown = f"{ratio:.2f}" if ratio else ""
        speed = "" if job == "first" else f"{rows / seconds:,.0f}"
        table.add_row(job, client, speed, f"{seconds:.2f}", shown)
    console.print(table)
    streams = [run for run in found["runs"] if run["job"] == "stream"]
    if streams:
        table = Table("stream", "offered/s", "copied", "of", "p50 ms", "p99 ms", "most ms")
        for run in streams:
            figures = (f"{run[name]:,.0f}" for name in ("p50_ms", "p99_ms", "max_ms"))
            counts = (f"{run['offered_per_s']:,.0f}", f"{run['copied']:,}", f"{run['rows']:,}")
            table.add_row(run["client"], *counts, *figures)
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench-spark"))
    parser.add_argument("--peer-python", type=Path, help="an interpreter with pyspark==3.5.1")
    parser.add_argument("--rows", type=int, default=5_000_000, help="of 100 bytes (5,000,000)")
    parser.add_argument("--repeat", type=int, default=3, help="rounds that count (3); 0: none")
    parser.add_argument(
        "--rate",
        type=int,
        nargs="*",
        default=[100_000, 200_000],
        help="rows/s of the streams; the peer has the first only (100,000 and 200,000)",
    )
    parser.add_argument(
        "--trigger", type=int, default=1, help="seconds of the streams' trigger (1)"
    )
    setting: dict[str, Any] = {"action": "append", "default": [], "metavar": "NAME=VALUE"}
    parser.add_argument("--setting", **setting, help="of the Spark with kafkaclient")
    parser.add_argument("--reading", **setting, help="an option of all reads: columns=value")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = asyncio.run(_main(given))
    (given.out / "summary.json").write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    _show(found)


if __name__ == "__main__":
    main()
